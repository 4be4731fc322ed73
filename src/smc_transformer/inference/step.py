"""One step of the particle filter: select, mutate, weigh; or as a pair, predict and observe.

    prediction = predict_step(network, settings, state, generator)         # select and mutate: what X_t may be
    observed = observe_step(network, settings, state, prediction, x, ...)  # weigh by X_t, draw what is missing of it

Whole sequences, streams, gaps and forecasts all go through these functions, which change a `ParticleState` in place; a
step without an observation simply has no weight.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.inference import compiled, engine, follow
from smc_transformer.inference.mutation import make_room, mutate
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import Moved, ParticleState
from smc_transformer.kernels.follow import FollowModel
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise
from smc_transformer.nn.encoders.base import State
from smc_transformer.nn.streams import Streams
from smc_transformer.predictive import Mixture
from smc_transformer.smc.randomness import draw_uniform
from smc_transformer.smc.selection import Selection, select
from smc_transformer.smc.weights import reweight, uniform_log_weights


class Prediction(NamedTuple):
    """What weighted particles say about X_t before it is seen."""

    log_weights: Float[Tensor, "batch particle"]
    moved: Moved
    selection: Selection

    @property
    def parameters(self) -> Float[Tensor, "batch particle n_parameters"]:
        """Parameters of p(X_t | z) of each particle."""
        return self.moved.parameters

    def mixture(self, network: Network) -> Mixture:
        """The distribution of X_t, as a mixture with one step."""
        return network.observation.mixture(self.log_weights.unsqueeze(-1), self.parameters.unsqueeze(2))


class Observed(NamedTuple):
    """What an observation did."""

    log_increments: Float[Tensor, "batch"]
    """Estimates of log p(X_t | X_{<t})."""
    targets: Float[Tensor, "batch _ n_targets"]
    """X_t: shared, or as completed by each particle."""
    moved: Moved
    """As the particles were weighted: a proposal may have drawn z again."""


class FollowedStep(NamedTuple):
    """What a step of followed series in C says about X_t before it is seen."""

    model: FollowModel
    parameters: Float[Tensor, "batch particle n_parameters"]
    log_density: Float[Tensor, "batch n_targets"]
    """Of each target alone; NaN where it is missing."""
    pit: Float[Tensor, "batch n_targets"]
    resampled: Bool[Tensor, "batch"]


def begin(
    network: Network,
    first: Float[Tensor, "batch n_inputs"],
    n_particles: int,
    capacity: int | None = None,
    encoder_state: State | None = None,
) -> ParticleState:
    """The particles after X_0, in which everything is observed.

    Args:
        network: the network.
        first: X_0.
        n_particles: particles of each sequence.
        capacity: slots to make room for; when they are used up there are more, or, if they are as many as the window,
            the oldest are written over (a ring). None: the window's ring, or a few slots if there is no window.
        encoder_state: the encoder's state; None: that before anything was seen.
    """
    if capacity is None:
        capacity = network.config.window or 16
    if encoder_state is None:
        encoder_state = network.encoder.start(network.observation.features(first))
    batch, d_model = len(first), network.config.d_model
    nothing = torch.zeros(batch, dtype=torch.long)
    return ParticleState(
        last=first.unsqueeze(1),
        log_weights=uniform_log_weights(first.new_empty(batch, n_particles)),
        informed=torch.zeros(batch, dtype=torch.bool, device=first.device),
        keys=first.new_empty(batch, n_particles, capacity, d_model),
        values=first.new_empty(batch, n_particles, capacity, d_model),
        # Zeros, as torch also reads slots that only other sequences of the batch have written.
        trajectories=torch.zeros(batch, n_particles, capacity, dtype=torch.long, device=first.device),
        position=nothing,
        n_slots=nothing.clone(),
        encoder_state=encoder_state,
    )


def predict_step(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    generator: Generator | None,
    noise: Noise | None = None,
    *,
    embedding: Float[Tensor, "batch _ d_model"] | None = None,
    first_stage: Float[Tensor, "batch particle"] | None = None,
) -> Prediction:
    """The first half of a step, in place: select and mutate.

    Args:
        network: the network.
        settings: of the inference.
        state: the particles after the observation before.
        generator: source of randomness.
        noise: standard noise of the step; None draws it.
        embedding: e_{t-1}, where it is known already.
        first_stage: logarithms of first-stage weights, by which an auxiliary filter selects.
    """
    selection = select_particles(network, settings, state, generator, first_stage)
    if noise is None:
        noise = network.attention.draw_noise(len(state), state.n_particles, 1, generator).at(0)
    moved = mutate(network, state, embed(network, state) if embedding is None else embedding, noise)
    return Prediction(state.log_weights, moved, selection)


def observe_step(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    prediction: Prediction,
    x: Float[Tensor, "batch n_inputs"],
    generator: Generator | None,
    *,
    on_collapse: str = "error",
) -> Observed:
    """The second half of a step, in place: weigh by what is observed of X_t, draw what is missing (NaN).

    Args:
        network: the network.
        settings: of the inference.
        state: the particles that made the prediction.
        prediction: what `predict_step` returned.
        x: X_t, which the particles take as their next input.
        generator: source of randomness for what is missing.
        on_collapse: what to do when no particle can explain X_t.
    """
    n_targets = network.config.n_targets
    targets, moved = x[:, None, :n_targets], prediction.moved
    seen = ~x[:, :n_targets].isnan()
    observed = None if seen.all() else seen
    increments, log_correction = x.new_zeros(len(x)), None
    if observed is None:
        proposed = settings.propose.propose(network, state, moved, x[:, :n_targets], generator)
        if proposed is not None:
            moved, log_correction = proposed
    if observed is None or observed.any():
        increments = weigh(network, state, moved.parameters, x[:, :n_targets], observed, on_collapse, log_correction)
    if observed is not None:
        targets = _complete(network, moved.parameters, targets, observed, generator)
    _receive_row(state, targets, x)
    return Observed(increments, targets, moved)


def follow_step(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    target: Float[Tensor, "batch n_targets"],
    stream_keys: Int[Tensor, "batch"],
) -> FollowedStep | None:
    """What `predict_step` does, and how expected X_t was, in one call of C; None where torch has a part in it.

    In place, with the random numbers of streams.
    """
    if torch.is_grad_enabled() or state.past is not None:
        return None
    model = follow.follow_model(network, settings)
    if model is None:
        return None
    make_room(network, state)
    return FollowedStep(model, *follow.run_follow(model, state, stream_keys, target.contiguous()))


def observe_followed(
    network: Network,
    state: ParticleState,
    followed: FollowedStep,
    x: Float[Tensor, "batch n_inputs"],
    generator: Generator | None,
) -> None:
    """What `observe_step` does after a `follow_step`; weights are reset to equal where no particle can explain X_t."""
    model, parameters, n_targets = followed.model, followed.parameters, network.config.n_targets
    target = x[:, :n_targets].contiguous()
    model.weigh(target, parameters, state.log_weights, state.informed)
    targets, seen = target.unsqueeze(1), ~target.isnan()
    if not seen.all():
        rows = (~seen.all(dim=-1)).nonzero().flatten()
        part, kept = seen[rows], state.log_weights[rows]
        log_density = network.observation.components(parameters[rows]).log_prob(targets[rows], part.unsqueeze(1))
        log_weights, _ = reweight(kept, log_density, step=state.position[rows], on_collapse="uniform")
        state.log_weights[rows] = torch.where(part.any(dim=-1, keepdim=True), log_weights, kept)
        state.informed[rows] |= part.any(dim=-1)
        targets = _complete(network, parameters, targets, seen, generator)
    _receive_row(state, targets, x)


def _receive_row(
    state: ParticleState, targets: Float[Tensor, "batch _ n_targets"], x: Float[Tensor, "batch n_inputs"]
) -> None:
    """Take X_t as the next input, with these targets: shared, or as completed by each particle."""
    n_own = max(targets.shape[1], state.last.shape[1])  # particles with inputs of their own keep them
    known = x[:, None, targets.shape[-1] :].expand(-1, n_own, -1)
    receive(state, torch.cat((targets.expand(-1, n_own, -1), known), dim=-1))


def select_particles(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    generator: Generator | None,
    first_stage: Float[Tensor, "batch particle"] | None = None,
) -> Selection:
    """Resample the sequences that are due; their particles inherit trajectories, inputs and encoder states."""
    if not state.n_slots.any():  # nothing has been weighted or inherited yet
        return Selection(state.themselves, state.log_weights, torch.zeros_like(state.informed))
    selection = select(
        state.log_weights,
        settings.resample,
        ess_threshold=settings.ess_threshold,
        informed=state.informed,
        first_stage=first_stage,
        generator=generator,
    )
    state.log_weights = selection.log_weights
    state.informed = state.informed & ~selection.resampled
    state.trajectories_are_own = state.trajectories_are_own and not bool(selection.resampled.any())
    n_slots = state.n_slots.tolist()
    held = slice(network.attention.first_slot(min(n_slots)), max(n_slots))
    if held.stop > state.capacity:
        held = slice(0, state.capacity)
    compiled.inherit_trajectories(state.trajectories, selection.ancestors, held, state.keys)
    if state.past is not None:
        state.past = state.past._replace(parents=state.past.parents.gather(1, selection.ancestors))
    if state.has_own_inputs:
        index = selection.ancestors.unsqueeze(-1).expand(-1, -1, state.last.shape[-1])
        state.last = state.last.gather(1, index)
        state.encoder_state = inherit_rows(state.encoder_state, selection.ancestors)
    return selection


def receive(state: ParticleState, last: Float[Tensor, "batch _ n_inputs"]) -> None:
    """Take the input that the next step starts from: the same for all particles, or one for each."""
    batch, n_own = last.shape[:2]
    if n_own > 1 and state.encoder_state and len(state.encoder_state[0]) == batch:
        # From here on particles differ in what they saw: each needs an encoder state of its own.
        state.encoder_state = tuple(tensor.repeat_interleave(n_own, dim=0) for tensor in state.encoder_state)
    state.last = last


def embed(network: Network, state: ParticleState) -> Float[Tensor, "batch _ d_model"]:
    """The embedding of the last input, one for each sequence or particle."""
    features = network.observation.features(state.last.flatten(0, 1))
    first, *others = set(state.position.tolist())
    position = state.position.repeat_interleave(state.last.shape[1]) if others else first
    if engine.can_embed_step(network, features):
        embedding, state.encoder_state = compiled.run_embedding_step(network, features, state.encoder_state, position)
    else:
        embedding, state.encoder_state = network.encoder.step(features, state.encoder_state, position)
    return embedding.unflatten(0, state.last.shape[:2])


def weigh(
    network: Network,
    state: ParticleState,
    parameters: Float[Tensor, "batch particle n_parameters"],
    target: Float[Tensor, "batch n_targets"],
    observed: Bool[Tensor, "batch n_targets"] | None,
    on_collapse: str,
    log_correction: Float[Tensor, "batch particle"] | None = None,
) -> Float[Tensor, "batch"]:
    """Weight by the observed coordinates of X_t (None: all); returns the log-likelihood increments."""
    if observed is None:
        log_density = network.observation.components(parameters).log_prob(target.unsqueeze(1))
    else:
        log_density = _log_density_of_observed(network, parameters, target, observed)
    if log_correction is not None:
        log_density = log_density + log_correction
    log_weights, increments = reweight(state.log_weights, log_density, step=state.position, on_collapse=on_collapse)
    if observed is None:
        state.log_weights, state.informed = log_weights, torch.ones_like(state.informed)
        return increments
    seen = observed.any(dim=-1)
    state.log_weights = torch.where(seen.unsqueeze(-1), log_weights, state.log_weights)
    state.informed = state.informed | seen
    return torch.where(seen, increments, 0.0)


def _log_density_of_observed(
    network: Network,
    parameters: Float[Tensor, "batch particle n_parameters"],
    target: Float[Tensor, "batch n_targets"],
    observed: Bool[Tensor, "batch n_targets"],
) -> Float[Tensor, "batch particle"]:
    """Log p of what is observed of X_t.

    Sequences of which all is observed are apart from the others, as a density with a mask rounds differently: what a
    sequence gets must not depend on the gaps of others.
    """
    log_density, whole = parameters.new_zeros(parameters.shape[:2]), observed.all(dim=-1)
    for rows, has_gaps in ((whole.nonzero().flatten(), False), ((~whole).nonzero().flatten(), True)):
        if len(rows):
            mask = observed[rows].unsqueeze(1) if has_gaps else None
            components = network.observation.components(parameters[rows])
            log_density[rows] = components.log_prob(target[rows].unsqueeze(1), mask)
    return log_density


def _complete(
    network: Network,
    parameters: Float[Tensor, "batch particle n_parameters"],
    targets: Float[Tensor, "batch 1 n_targets"],
    observed: Bool[Tensor, "batch n_targets"],
    generator: Generator | None,
) -> Float[Tensor, "batch particle n_targets"]:
    """The targets, with those that are missing drawn by each particle given the others."""
    if not isinstance(generator, Streams):
        return network.observation.components(parameters).complete(targets, observed.unsqueeze(1), generator)
    completed = targets.repeat(1, parameters.shape[1], 1)
    none, all_seen = ~observed.any(dim=-1), observed.all(dim=-1)
    for chosen in (none, ~none & ~all_seen):
        rows = chosen.nonzero().flatten()
        if len(rows):
            components, mask = network.observation.components(parameters[rows]), observed[rows].unsqueeze(1)
            completed[rows] = components.complete(targets[rows], mask, generator.take(rows))
    return completed


def spread(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    n_samples: int,
    capacity: int,
    generator: Generator | None,
) -> tuple[ParticleState, Int[Tensor, "batch sample"]]:
    """Equally weighted particles drawn from a state, which share what it remembers; also returns who was drawn.

    Only the slots that the next step can see are kept; `capacity` more fit in.
    """
    ends = settings.resample(state.log_weights, n_samples, generator)
    # Most schemes return sorted indices: shuffled, any few of the new particles are a sample too.
    order = draw_uniform(tuple(ends.shape), ends.new_empty(0, dtype=torch.float32), generator)
    order = order.argsort(dim=-1, stable=True)
    ends = ends.gather(1, order)
    own = state.has_own_inputs
    last = state.last.gather(1, ends.unsqueeze(-1).expand(-1, -1, state.last.shape[-1])) if own else state.last
    encoder_state = inherit_rows(state.encoder_state, ends) if own else state.encoder_state
    fresh = begin(network, last[:, 0], n_samples, capacity, encoder_state)
    fresh.last, fresh.position = last, state.position
    kept = network.attention.n_earlier(state.n_slots)
    if kept.any():
        fresh.past = state.last_slots(kept, ends)
    return fresh, ends


def inherit_rows(state: State, ancestors: Int[Tensor, "batch particle"]) -> State:
    """Encoder states, one row for each particle, taken from the particles' parents."""
    if not state:
        return state
    batch = len(ancestors)
    n_parents = len(state[0]) // batch
    rows = (ancestors + n_parents * torch.arange(batch, device=ancestors.device).unsqueeze(-1)).flatten()
    return tuple(tensor[rows] for tensor in state)
