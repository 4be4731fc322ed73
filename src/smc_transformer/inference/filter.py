"""The particle filter over whole sequences: select, mutate, weight (the paper's section 3.2).

Index t of every time axis is step t+1 of the mathematics: it draws the latents of slot t and the attention vector
z(t+1), and is weighted by X_{t+1}. A missing X_{t+1} (NaN) is drawn by each particle for itself, which then goes on
with it as its own input; where coordinates are missing, the others weight, and the missing ones are drawn given them.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.inference import compiled, engine
from smc_transformer.inference.mutation import peek
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import begin, observe_step, predict_step
from smc_transformer.kernels import threads_for_kernels
from smc_transformer.kernels.filter import FilterOutputs
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise
from smc_transformer.nn.encoders.base import State
from smc_transformer.nn.streams import NOISE, in_stage
from smc_transformer.predictive import Mixture
from smc_transformer.smc.genealogy import trace_trajectories, unique_ancestors
from smc_transformer.smc.weights import effective_sample_size
from smc_transformer.support.memory import check_memory

ON_COLLAPSE = ("error", "uniform")


@dataclass(frozen=True)
class Filtered:
    """What the particle filter found out about X_1, ..., X_T (index t of the time axes is X_{t+1}).

    Attributes:
        log_increments: estimates of log p(X_t | X_{<t}); 0 where nothing was observed.
        log_weights: normalised log-weights W_t after each observation.
        ancestors: for each particle of a step, its parent at the step before.
        resampled: whether the particles were resampled before each step.
        noise: the noise behind the latents, from which `SMCTransformer.replay` rebuilds any trajectory.
        read_outs: the parameters of p(X_t | z) of each particle, as it was weighted: those of
            `predictive`, unless the proposal has drawn its z again.
        attention: attention vectors z of each particle, or None when they were not kept.
        completed: targets X_1, ..., X_T as each particle completed them, or None when none were missing.
    """

    log_increments: Float[Tensor, "batch time"]
    log_weights: Float[Tensor, "batch particle time"]
    ancestors: Int[Tensor, "batch particle time"]
    resampled: Bool[Tensor, "batch time"]
    noise: Noise
    read_outs: Float[Tensor, "batch particle time n_parameters"]
    attention: Float[Tensor, "batch particle time d_model"] | None
    completed: Float[Tensor, "batch particle time n_targets"] | None

    @property
    def log_likelihood(self) -> Float[Tensor, "batch"]:
        """Estimate of log p(X_1, ..., X_T | X_0) of what was observed; its exponential is unbiased."""
        return self.log_increments.sum(dim=-1)

    @property
    def ess(self) -> Float[Tensor, "batch time"]:
        """Effective sample size after each observation, between 1 and the number of particles."""
        return effective_sample_size(self.log_weights.transpose(1, 2))

    @property
    def trajectories(self) -> Int[Tensor, "batch particle time"]:
        """The ancestral trajectories of the last particles."""
        return trace_trajectories(self.ancestors)

    @property
    def unique_ancestors(self) -> Int[Tensor, "batch time"]:
        """How many different particles of each step the last particles descend from."""
        return unique_ancestors(self.trajectories)


@dataclass(frozen=True)
class FilterResult(Filtered):
    """All that `Filtered` has, and what the filter predicted.

    Attributes:
        predictive: the one-step predictive mixtures, made before each observation was seen.
    """

    predictive: Mixture


class Trace(NamedTuple):
    """What the filter writes down at each step; the names and shapes are those of `FilterResult`."""

    ancestors: Int[Tensor, "batch particle time"]
    resampled: Bool[Tensor, "batch time"]
    log_increments: Float[Tensor, "batch time"]
    prior_log_weights: Float[Tensor, "batch particle time"]
    log_weights: Float[Tensor, "batch particle time"]
    parameters: Float[Tensor, "batch particle time n_parameters"]
    read_outs: Float[Tensor, "batch particle time n_parameters"]
    attention: Float[Tensor, "batch particle time d_model"] | None
    completed: Float[Tensor, "batch particle time n_targets"] | None


@torch.no_grad()
def particle_filter(
    network: Network,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    settings: InferenceSettings,
    generator: Generator | None = None,
    *,
    on_collapse: str = "error",
    keep_attention: bool = False,
    noise: Noise | None = None,
) -> FilterResult:
    """Run the filter; `noise` instead of fresh draws makes runs comparable."""
    noise = _noise_for(network, x, settings, generator, noise)
    trace, _ = _run(network, x, settings, noise, on_collapse, generator, keep_attention=keep_attention)
    predictive = network.observation.mixture(trace.prior_log_weights, trace.parameters)
    return FilterResult(**_found(trace, noise), predictive=predictive)


@torch.no_grad()
def filter_alone(
    network: Network,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    settings: InferenceSettings,
    generator: Generator | None = None,
    *,
    embedding: Float[Tensor, "batch time d_model"] | None = None,
) -> Filtered:
    """Run the filter for those who do not ask what it predicted: predictions hold a copy of the observation model.

    Sequences without gaps may come with their embeddings e_0, ..., e_{T-1}, where these are known already.
    """
    noise = _noise_for(network, x, settings, generator, None)
    trace, _ = _run(network, x, settings, noise, "error", generator, embedding=embedding)
    return Filtered(**_found(trace, noise))


def _found(trace: Trace, noise: Noise) -> dict[str, Any]:
    names = ("log_increments", "log_weights", "ancestors", "resampled", "read_outs", "attention", "completed")
    return {"noise": noise, **{name: getattr(trace, name) for name in names}}


@torch.no_grad()
def filter_state(
    network: Network,
    x: Float[Tensor, "batch time n_inputs"],
    settings: InferenceSettings,
    generator: Generator | None = None,
    *,
    on_collapse: str = "error",
    noise: Noise | None = None,
) -> ParticleState:
    """Run the filter; returns the particles after the last observation, ready to go on."""
    if x.shape[1] == 1:
        return begin(network, x[:, 0], settings.n_particles, capacity=0)
    noise = _noise_for(network, x, settings, generator, noise)
    _, state = _run(network, x, settings, noise, on_collapse, generator, keep_state=True)
    assert state is not None
    return state


def filter_numbers(network: Network, settings: InferenceSettings, length: int) -> int:
    """About how many numbers the filter holds of a sequence: noise of four kinds, keys and values."""
    return 6 * settings.n_particles * length * network.config.d_model


def _noise_for(
    network: Network, x: Tensor, settings: InferenceSettings, generator: Generator | None, given: Noise | None
) -> Noise:
    """Given or fresh noise; a proposal that draws z again writes down the noise of it, in a copy."""
    if given is None:
        fresh = in_stage(generator, NOISE)
        numbers = 4 * x.shape[0] * settings.n_particles * (x.shape[1] - 1) * network.config.d_model
        what = f"a filter of {settings.n_particles} particles over {len(x)} sequences of {x.shape[1]} steps"
        check_memory(numbers * x.element_size(), what)
        return network.attention.draw_noise(len(x), settings.n_particles, x.shape[1] - 1, fresh)
    return given._replace(attention=given.attention.clone()) if settings.propose.draws_again else given


def _run(
    network: Network,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    settings: InferenceSettings,
    noise: Noise,
    on_collapse: str,
    generator: Generator | None,
    *,
    keep_attention: bool = False,
    keep_state: bool = False,
    embedding: Float[Tensor, "batch time d_model"] | None = None,
) -> tuple[Trace, ParticleState | None]:
    batch, n_particles, n_steps, d_model = noise.query.shape
    n_targets = network.config.n_targets
    missing = x[:, 1:, :n_targets].isnan().any(dim=-1).any(dim=0)
    fast = engine.can_filter(network, settings, x)
    # Inputs are shared by all particles up to the first gap; from there on each particle has its own.
    n_shared = 1 + int(missing.int().argmax()) if missing.any() and not fast else n_steps
    shared = x[:, :n_shared].nan_to_num(0.0) if fast else x[:, :n_shared]  # where a gap has been, nobody looks
    encoder_state: State = ()
    if embedding is None or keep_state or not fast:
        with threads_for_kernels() if fast else nullcontext():
            embedding, encoder_state = network.encoder.encode(network.observation.features(shared))

    def empty(*shape: int) -> Tensor:
        return x.new_empty(batch, n_particles, n_steps, *shape)

    parameters = empty(network.observation.n_parameters)
    draws_again = settings.propose.draws_again
    trace = Trace(
        ancestors=empty().long(),
        resampled=torch.zeros(batch, n_steps, dtype=torch.bool, device=x.device),
        log_increments=x.new_zeros(batch, n_steps),
        prior_log_weights=empty(),
        log_weights=empty(),
        parameters=parameters,
        read_outs=torch.empty_like(parameters) if draws_again else parameters,
        attention=empty(d_model) if keep_attention else None,
        completed=empty(n_targets) if missing.any() and not fast else None,
    )
    state = None
    if keep_state or not fast:
        state = begin(network, x[:, 0], n_particles, n_steps, encoder_state)
    if fast:
        caches = () if state is None else (state.keys, state.values, state.trajectories)
        out = FilterOutputs(*trace[:6], trace.attention, *caches)
        with threads_for_kernels():
            gaps = compiled.run_filter(network, settings, x, embedding, noise, out, on_collapse, generator)
        if gaps is not None:
            trace = trace._replace(completed=gaps.completed)
        if state is not None:
            state.last, state.log_weights = x[:, None, -1], trace.log_weights[:, :, -1]
            state.position, state.n_slots = state.position + n_steps, state.n_slots + n_steps
            state.informed, state.trajectories_are_own = torch.ones_like(state.informed), False
            if gaps is not None:
                state.last, state.encoder_state = gaps.last, gaps.encoder_state()
    elif state is not None:
        _walk(network, settings, state, x, embedding, noise, trace, on_collapse, generator)
    return trace, state


def _walk(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    embedding: Float[Tensor, "batch shared d_model"],
    noise: Noise,
    trace: Trace,
    on_collapse: str,
    generator: Generator | None,
) -> None:
    """Take the particles through all steps, one after the other, and write the trace."""
    for step in range(noise.query.shape[2]):
        shared = embedding[:, None, step] if step < embedding.shape[1] else None
        first_stage, anticipated = None, None
        if settings.propose.anticipates and shared is not None and step > 0:
            anticipated = _anticipate(network, settings, state, shared, x[:, step + 1], generator)
        if anticipated is not None:
            first_stage = anticipated.first_stage
        prediction = predict_step(
            network, settings, state, generator, noise.at(step), embedding=shared, first_stage=first_stage
        )
        trace.ancestors[:, :, step] = prediction.selection.ancestors
        trace.resampled[:, step] = prediction.selection.resampled
        # A prediction must not know X_t, so an auxiliary filter predicts by particles that were not selected by it.
        predicted = prediction if anticipated is None else anticipated
        trace.prior_log_weights[:, :, step] = predicted.log_weights
        trace.parameters[:, :, step] = predicted.parameters
        observed = observe_step(
            network, settings, state, prediction, x[:, step + 1], generator, on_collapse=on_collapse
        )
        trace.log_increments[:, step] = observed.log_increments
        trace.log_weights[:, :, step] = state.log_weights
        if settings.propose.draws_again:
            trace.read_outs[:, :, step] = observed.moved.parameters
            noise.attention[:, :, step] = observed.moved.eps
        if trace.completed is not None:
            trace.completed[:, :, step] = observed.targets
        if trace.attention is not None:
            trace.attention[:, :, step] = observed.moved.z


class _Anticipated(NamedTuple):
    """A prediction by particles before they are selected, and the weights by which they will be."""

    log_weights: Float[Tensor, "batch particle"]
    parameters: Float[Tensor, "batch particle n_parameters"]
    first_stage: Float[Tensor, "batch particle"]


def _anticipate(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    embedding: Float[Tensor, "batch 1 d_model"],
    x: Float[Tensor, "batch n_inputs"],
    generator: Generator | None,
) -> _Anticipated | None:
    """What an auxiliary filter looks at before it selects; None where X_t is not wholly observed."""
    target = x[:, : network.config.n_targets]
    if target.isnan().any():
        return None
    fresh = network.attention.draw_noise(len(x), state.n_particles, 1, generator).at(0)
    parameters = peek(network, state, embedding, fresh).parameters
    nothing = embedding.new_zeros(len(x), state.n_particles, embedding.shape[-1])
    mean = peek(network, state, embedding, Noise(nothing, nothing, nothing, nothing)).z
    last = state.last[..., : network.config.n_targets]
    first_stage = settings.propose.first_stage(network, mean, embedding, last, target)
    return _Anticipated(state.log_weights, parameters, first_stage)
