"""What C does for a network, call by call: its tensors in, tensors of the same meaning out.

Whether C can do it is decided by `engine` before; each of these functions needs the answer yes.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from smc_transformer.inference import engine
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import ParticleState
from smc_transformer.kernels.choice import about_numbers, in_c
from smc_transformer.kernels.densities import Elliptical, Form, NegativeBinomial
from smc_transformer.kernels.filter import FilterOutputs, Gaps, filter_sequences
from smc_transformer.kernels.layer import LayerTensors
from smc_transformer.kernels.paths import PathsModel, PathsStart, draw_paths
from smc_transformer.kernels.recurrent import encode_trees, trees
from smc_transformer.kernels.replay import replay_outputs
from smc_transformer.kernels.rows import embed_rows, map_rows
from smc_transformer.kernels.step import PastSlots, mutate_particles
from smc_transformer.kernels.step import inherit_trajectories as inherit_in_c
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.nn.covariance import Covariance, FullCovariance
from smc_transformer.nn.encoders.base import Position, State
from smc_transformer.nn.noise import standard_normal
from smc_transformer.nn.readout import TransformerReadout
from smc_transformer.nn.streams import OBSERVATION, SELECTION, Streams, standard_gamma
from smc_transformer.smc.weights import WeightCollapseError


def run_filter(
    network: Network,
    settings: InferenceSettings,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    embedding: Float[Tensor, "batch time d_model"],
    noise: Noise,
    out: FilterOutputs,
    on_collapse: str,
    generator: Generator | None,
) -> Gaps | None:
    """Filter whole sequences in one call; needs `can_filter`.

    Args:
        network: the network.
        settings: of the inference.
        x: X_0, ..., X_T; targets may be missing (NaN) after X_0.
        embedding: e_0, ..., e_{T-1}, up to the first missing value that they depend on.
        noise: (batch, particle, time, d_model).
        out: where to write.
        on_collapse: "error" raises a `WeightCollapseError`, "uniform" resets the weights to equal.
        generator: source of randomness for resampling and missing targets.

    Returns:
        Where targets were missing, the inputs of each particle.
    """
    config, attention = network.config, network.attention
    form = engine.kernel_form(network.observation)
    assert form is not None
    batch, n_particles, n_steps, _ = noise.query.shape
    gaps = room_for_gaps(network, form, x, n_particles) if isinstance(form, Elliptical) else None
    uniforms = draw_numbers(settings, form, (n_steps, batch, n_particles), gaps, generator)
    targets = x[:, :, : config.n_targets]
    added = targets[:, :-1].log1p() if isinstance(form, NegativeBinomial) else targets[:, :-1]
    collapsed = filter_sequences(
        layer_tensors(network, read_out=True),
        form,
        _means(network, embedding),
        embedding,
        _for_factors(attention, noise),
        targets[:, 1:],
        added if config.predict_change else None,
        uniforms,
        scheme=settings.resampling,
        ess_threshold=settings.ess_threshold,
        window=attention.window,
        stop_at_collapse=on_collapse == "error",
        out=out,
        gaps=gaps,
    )
    if on_collapse == "error" and bool((collapsed >= 0).any()):
        first = int(collapsed[collapsed >= 0].min())
        raise WeightCollapseError(sequence=int((collapsed == first).nonzero()[0, 0]), step=first + 1)
    return gaps


def draw_numbers(
    settings: InferenceSettings,
    density: Form,
    size: tuple[int, int, int],
    gaps: Gaps | None,
    generator: Generator | None,
) -> Float[Tensor, "time batch n_uniforms"]:
    """The uniform numbers of the selection and, filled in, those that missing targets are made from.

    `size` is that of (time, batch, particle). Streams give the numbers that they give a filter which goes step by step,
    and so does a generator of torch where there are no gaps.
    """
    n_steps, batch, n_particles = size
    n_uniforms = 1 if settings.resampling == "systematic" else n_particles
    uniforms = torch.zeros(n_steps, batch, n_uniforms, dtype=torch.float64)
    if settings.ess_threshold > 0 and isinstance(generator, Streams):
        uniforms = _selection_uniforms(generator, n_steps, n_uniforms)
    elif settings.ess_threshold > 0:
        torch.rand(n_steps - 1, batch, n_uniforms, generator=generator, dtype=torch.float64, out=uniforms[1:])
    if gaps is not None and isinstance(density, Elliptical):
        _draw_missing(gaps, density, generator)
    return uniforms


def _selection_uniforms(streams: Streams, n_steps: int, n_uniforms: int) -> Float[Tensor, "time batch n_uniforms"]:
    """What each sequence draws for its selection at each step."""
    steps = streams.steps.unsqueeze(-1) + torch.arange(n_steps)
    each = Streams(streams.keys.repeat_interleave(n_steps), steps.flatten(), SELECTION)
    drawn = each.uniforms((len(each), n_uniforms))
    return drawn.unflatten(0, (len(streams), n_steps)).transpose(0, 1).contiguous()


def room_for_gaps(network: Network, density: Elliptical, x: Tensor, n_particles: int) -> Gaps | None:
    """What the filter needs for missing targets, and where it writes; None where there are none."""
    observed = ~x[:, 1:, : network.config.n_targets].isnan()
    if bool(observed.all()):
        return None
    attention, form, position = network.attention, network.encoder.kernel_form(), engine.position_of(network.encoder)
    assert form is not None
    batch, n_steps, n_targets = observed.shape

    def empty(*shape: int) -> Tensor:
        return x.new_zeros(batch, n_particles, *shape)

    return Gaps(
        observed,
        x.nan_to_num(0.0),
        form,
        attention.query.weight,
        attention.key.weight,
        attention.value.weight,
        normal=empty(n_steps, n_targets),
        gamma=None if density.degrees is None else empty(n_steps),
        positions=None if position is None else position(0, n_steps).to(x).detach(),
        completed=empty(n_steps, n_targets),
        last=empty(x.shape[-1]),
        previous=empty(x.shape[-1]),
        hidden=empty(network.config.d_model),
    )


def _draw_missing(gaps: Gaps, density: Elliptical, generator: Generator | None) -> None:
    """Draw what missing targets are made from, for the steps of each sequence that miss some."""
    sequences, steps = (~gaps.observed.all(dim=2)).nonzero(as_tuple=True)
    n_particles, n_targets = gaps.normal.shape[1], gaps.normal.shape[3]
    if isinstance(generator, Streams):
        generator = Streams(generator.keys[sequences], generator.steps[sequences] + steps, OBSERVATION)
    if gaps.gamma is not None and density.degrees is not None:
        n_observed = gaps.observed[sequences, steps].sum(dim=1, keepdim=True).to(gaps.gamma)
        shapes = ((density.degrees + n_observed) / 2).expand(-1, n_particles)
        gaps.gamma[sequences, :, steps] = standard_gamma(shapes, generator)
    gaps.normal[sequences, :, steps] = standard_normal((len(steps), n_particles, n_targets), gaps.normal, generator)


def run_step(
    network: Network,
    embedding: Float[Tensor, "batch _ d_model"],
    noise: Noise,
    keys: Float[Tensor, "held particle slot d_model"],
    values: Float[Tensor, "held particle slot d_model"],
    trajectories: Int[Tensor, "batch particle slot"],
    n_slots: Int[Tensor, "batch"],
    past: PastSlots | None = None,
    held: Int[Tensor, "batch"] | None = None,
) -> tuple[Float[Tensor, "batch particle d_model"], Float[Tensor, "batch particle n_parameters"] | None]:
    """Write the latents of the next slot of each sequence and attend over its window; needs `can_step`.

    Args:
        network: the network.
        embedding: e_{t-1}, of each sequence or of each particle.
        noise: of this step, (batch, particle, d_model).
        keys: of all slots; written to, like values and trajectories.
        values: likewise.
        trajectories: the particle that holds each slot of each particle's trajectory.
        n_slots: how many slots of each sequence have been written.
        past: slots before the first one, shared with other particles.
        held: where the keys and values of each sequence are, if they are among those of others.

    Returns:
        z, and the outputs of the read-out net, before any shift; None where C does not know the read-out.
    """
    layer = layer_tensors(network, read_out=engine.can_read_out(network))
    means, eps = _means(network, embedding), _for_factors(network.attention, noise)
    caches = (keys, values, trajectories)
    return mutate_particles(layer, means, embedding, eps, *caches, n_slots, network.attention.window, past, held)


def _means(network: Network, embedding: Float[Tensor, "*batch d_model"]) -> tuple[Tensor, Tensor, Tensor]:
    """The queries, keys and values without their noise: each row by itself, so that no other can change its bits."""
    attention = network.attention
    weight = torch.cat([part.weight.detach() for part in (attention.query, attention.key, attention.value)])
    query, key, value = map_rows(weight, embedding.detach()).unflatten(-1, (3, -1)).unbind(-2)
    return query, key, value


def run_embedding_step(
    network: Network, x: Float[Tensor, "row n_features"], state: State, position: Position
) -> tuple[Float[Tensor, "row d_model"], State]:
    """What `encoder.step` does, each row by itself; needs `can_embed_step`."""
    form = network.encoder.kernel_form()
    assert form is not None
    rest, previous = list(state), None
    if form.level_scale is not None:  # nothing has changed yet at the first input
        previous = torch.where(torch.as_tensor(position == 0).unsqueeze(-1), x, rest.pop(0))
    hidden = rest[0][:, 0] if form.recurrent is not None else None
    embedding = embed_rows(form, x, previous, hidden)
    seen = () if previous is None else (x,)
    return embedding, seen if form.recurrent is None else (*seen, embedding.unsqueeze(1))


class SharedEmbedding(NamedTuple):
    """Embeddings of inputs that trajectories share, each once."""

    embedding: Float[Tensor, "node d_model"]
    nodes: Int[Tensor, "batch trajectory time"]  # which of them is whose

    def of_trajectories(self) -> Float[Tensor, "batch trajectory time d_model"]:
        """Those of each trajectory."""
        return self.embedding.index_select(0, self.nodes.flatten()).view(*self.nodes.shape, -1)


def run_embedding(
    network: Network,
    inputs: Float[Tensor, "batch trajectory time n_inputs"],
    observed: Bool[Tensor, "batch time"],
    particles: Int[Tensor, "batch trajectory time"] | None,
) -> SharedEmbedding:
    """The embeddings of trajectories that have completed missing values, as functions of the encoder's parameters.

    Needs `can_embed`. Trajectories share their inputs up to the first gap, and from a gap on those that pass through
    the particle that completed it, up to the next gap; an encoder that remembers nothing shares whatever was observed.

    Args:
        network: the network.
        inputs: X_0, ..., X_{T-1} as each trajectory completed them.
        observed: whether they had no gap.
        particles: that each ancestral trajectory passes through, one for each of X_1, ..., X_T; None: they are not
            ancestral, and what they share is not known.
    """
    form, position = network.encoder.kernel_form(), engine.position_of(network.encoder)
    assert form is not None
    batch, n_trajectories, n_steps, _ = inputs.shape
    steps = torch.arange(n_steps, device=inputs.device)
    gap = torch.where(observed, -1, steps).cummax(dim=1).values  # the last one up to each input; -1: none yet
    own = gap >= 0
    if form.recurrent is None:  # sees the input alone or, for its change, the one before too
        own &= steps - gap <= (0 if form.level_scale is None else 1)
    if particles is None:
        branches = torch.arange(n_trajectories, device=inputs.device).expand(batch, -1).unsqueeze(-1)
    else:
        completed_by = (gap - 1).clamp(min=0).unsqueeze(1).expand(-1, n_trajectories, -1)
        branches = particles.gather(2, completed_by)
    branches = torch.where(own.unsqueeze(1), 1 + branches, 0)
    among = trees(branches)
    x = among.gathered(inputs)
    if form.level_scale is not None and form.change_scale is not None:
        previous = torch.where(among.parents.unsqueeze(-1) < 0, x, x[among.parents])
        x = torch.cat((x / form.level_scale, torch.asinh((x - previous) / form.change_scale)), dim=-1)
    if form.recurrent is not None:
        return SharedEmbedding(encode_trees(form, x, among), among.nodes)
    embedding = nn.functional.linear(x, form.weight, form.bias)
    if position is not None:
        embedding = embedding + position(0, n_steps).to(embedding)[among.rows % n_steps]
    return SharedEmbedding(embedding, among.nodes)


def run_replay(
    network: Network,
    embedding: Float[Tensor, "batch _ time d_model"] | SharedEmbedding,
    last_targets: Float[Tensor, "batch _ time n_targets"],
    noise: Noise,
    trajectories: Int[Tensor, "batch trajectory time"],
    read_outs: Float[Tensor, "batch trajectory time n_parameters"] | None = None,
) -> Float[Tensor, "batch trajectory time n_parameters"]:
    """The parameters of p(X_t | z) along trajectories, as functions of the model's; needs `can_replay`.

    Args:
        network: the network.
        embedding: what the trajectories see.
        last_targets: X_{t-1}.
        noise: of all particles, (batch, particle, time, d_model).
        trajectories: the particle that each trajectory passes through at each step.
        read_outs: what the filter found along the trajectories; None if it has not been through them.
    """
    attention, layer, nodes = network.attention, layer_tensors(network, read_out=True), None
    if isinstance(embedding, SharedEmbedding):
        embedding, nodes = embedding
    found = replay_outputs(
        layer, attention.means(embedding), embedding, noise, trajectories, attention.window, read_outs, nodes
    )
    if read_outs is None and network.config.predict_change:
        return network.observation.shift(found, last_targets)
    return found


def run_paths(
    network: Network,
    state: ParticleState,
    future_inputs: Float[Tensor, "batch horizon known"],
    noise: Noise | Int[Tensor, "horizon"],
    draws: Float[Tensor, "batch path horizon n_targets"] | Int[Tensor, "horizon 2"],
    streams: Streams | None = None,
) -> tuple[Float[Tensor, "batch path horizon n_targets"], Float[Tensor, "batch path horizon n_parameters"]]:
    """Draw paths that begin where the particles of a state are, which are left as they are; needs `can_draw_paths`.

    Args:
        network: the network.
        state: the paths where they begin.
        future_inputs: the inputs that are not targets, at the steps of the horizon.
        noise: (batch, path, horizon, d_model); or a seed for each step, which needs `can_seed_paths`.
        draws: of the standard distribution of the observation model; of counts, the numbers of the two draws of a step.
        streams: of the sequences; the seeds are then the numbers of their draws.

    Returns:
        The targets, and the parameters of the distributions that they were drawn from.
    """
    attention, encoder = network.attention, network.encoder
    form, density = encoder.kernel_form(), engine.kernel_form(network.observation)
    assert form is not None
    assert isinstance(density, Elliptical | NegativeBinomial)
    batch, n_paths, n_steps = len(state), state.n_particles, future_inputs.shape[1]
    last = network.observation.features(state.last)
    encoder_state = [
        part.unflatten(0, (batch, -1)).expand(-1, n_paths, *part.shape[1:]) for part in state.encoder_state
    ]
    previous = encoder_state.pop(0) if form.level_scale is not None else None
    if previous is not None:  # nothing has changed yet at the first input
        previous = torch.where((state.position == 0)[:, None, None], last, previous)
    position = engine.position_of(encoder)
    past = state.past
    if past is None:
        own = state.themselves
        most = int(state.n_slots.max())
        slots = (state.keys[:, :, :most], state.values[:, :, :most])
        past = PastSlots(*slots, own.unsqueeze(-1).expand(-1, -1, most).contiguous(), state.n_slots, own)
    start = PathsStart(
        last.expand(-1, n_paths, -1),
        past,
        previous,
        None if form.recurrent is None else encoder_state[0][:, :, 0],
        None if position is None else position(state.position, n_steps).to(last).detach(),
    )
    model = PathsModel(
        layer_tensors(network, read_out=True),
        form,
        density,
        attention.query.weight,
        attention.key.weight,
        attention.value.weight,
        attention.window,
        network.config.predict_change,
    )
    eps = noise if isinstance(noise, Tensor) else _for_factors(attention, noise)
    keys = None if streams is None else (streams.keys, streams.steps)
    return draw_paths(model, start, future_inputs, eps, draws, keys)


def inherit_trajectories(
    trajectories: Int[Tensor, "batch particle slot"],
    ancestors: Int[Tensor, "batch particle"],
    held: slice,
    like: Tensor,
) -> None:
    """Let children take over the held slots of their parents, in place; `like` has the model's type of numbers."""
    if in_c([f"ancestors in torch: {reason}" for reason in about_numbers(like)]):
        inherit_in_c(trajectories, ancestors, held, like)
        return
    inherited = trajectories[:, :, held]
    index = ancestors.unsqueeze(-1).expand(-1, -1, inherited.shape[-1])
    trajectories[:, :, held] = inherited.gather(1, index)


def layer_tensors(network: Network, *, read_out: bool) -> LayerTensors:
    """The parameters of the attention and, if asked for, of the read-out."""
    attention, readout = network.attention, network.readout
    query, key, value, z = map(_factor, attention.covariances)
    rest: list[Any] = []
    if read_out:
        rest += [readout.projection.weight, readout.projection.bias]
    if read_out and isinstance(readout, TransformerReadout):
        first, (inner, _, outer), second = readout.attention_norm, readout.feed_forward, readout.output_norm
        rest += [first.weight, first.bias, inner.weight, inner.bias, outer.weight, outer.bias]
        rest += [second.weight, second.bias, first.eps, second.eps]
    return LayerTensors(attention.n_heads, query, key, value, z, attention.output.weight, *rest)


def _factor(covariance: Covariance) -> Float[Tensor, "d_model"]:
    """The scale of each coordinate; ones for a full covariance, whose noise `_for_factors` has already scaled."""
    factor = covariance.factor
    if isinstance(covariance, FullCovariance):
        return factor.new_ones(covariance.size)
    return factor.expand(covariance.size)


def _for_factors(attention: StochasticSelfAttention, noise: Noise) -> list[Tensor]:
    """The noise that the kernels multiply with the factors."""
    pairs = zip(attention.covariances, noise, strict=True)
    return [part.scale(eps) if isinstance(part, FullCovariance) else eps for part, eps in pairs]
