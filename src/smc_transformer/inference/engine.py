"""Which work C does, and which torch: one place decides, call by call, and says why.

C does six things for a network: the filter over whole sequences, one step of all particles, a row of followed series
(a step, judged and weighed), the embeddings of trajectories with gaps, the gradient of the replay, and forecast paths
with or without gradients. Each has a list of conditions; `explain_filter`, `explain_step`, `explain_follow`,
`explain_embedding`, `explain_replay` and `explain_paths` return the reasons of those that are not met, as sentences
(none: C does the work). `can_filter`, `can_step`, `follow_model`, `can_embed`, `can_replay` and `can_draw_paths` also
log them, each once. What C does for the parts of a network is decided in the same way, by `nn.conditions`.

The kernels compute what the classes of this package compute. A user may have put other parts in their place, or changed
a method of a class or of a single object: hence the exact types, and the comparison of names in `_change_of`.
"""

import functools
import operator
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import FOLLOW_BLOCK, ParticleState
from smc_transformer.inference.watch import Watch
from smc_transformer.kernels.choice import about_numbers, in_c
from smc_transformer.kernels.densities import Categorical, Elliptical, Form, NegativeBinomial
from smc_transformer.kernels.filter import FilterOutputs, Gaps, filter_sequences
from smc_transformer.kernels.follow import FollowBlock, Followed, FollowModel, FollowSettings, FollowTensors
from smc_transformer.kernels.layer import LayerTensors
from smc_transformer.kernels.paths import PathsModel, PathsStart, draw_paths
from smc_transformer.kernels.recurrent import encode_trees, trees
from smc_transformer.kernels.replay import replay_outputs
from smc_transformer.kernels.rows import embed_rows, map_rows
from smc_transformer.kernels.step import PastSlots, mutate_particles
from smc_transformer.kernels.step import inherit_trajectories as inherit_in_c
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.nn.conditions import about_factors, about_noise, explain_draws
from smc_transformer.nn.covariance import Covariance, DiagonalCovariance, FullCovariance, IsotropicCovariance
from smc_transformer.nn.encoders import CausalEncoder, ChangesEncoder
from smc_transformer.nn.encoders.base import Position, State
from smc_transformer.nn.encoders.linear import LinearEncoder
from smc_transformer.nn.encoders.position import LearnedPosition
from smc_transformer.nn.noise import standard_normal
from smc_transformer.nn.observation import ObservationModel
from smc_transformer.nn.readout import LinearReadout, TransformerReadout
from smc_transformer.nn.streams import NOISE, OBSERVATION, SELECTION, Streams, in_stage, standard_gamma
from smc_transformer.smc.resampling import multinomial, residual, stratified, systematic
from smc_transformer.smc.weights import WeightCollapseError

SCHEMES = {"multinomial": multinomial, "residual": residual, "stratified": stratified, "systematic": systematic}
"""The resampling schemes as C knows them: another function may have been given one of their names."""

READ_OUTS = (
    (LinearReadout, nn.Linear),
    (TransformerReadout, nn.LayerNorm, nn.Sequential, nn.Linear, nn.ReLU, nn.Linear, nn.LayerNorm, nn.Linear),
)
"""The types of a read-out and of all its parts, in their order."""


# --- who does it --------------------------------------------------------------------------------------------


def explain_filter(
    network: Network, settings: InferenceSettings, x: Float[Tensor, "*batch time n_inputs"]
) -> list[str]:
    """Why the kernel of whole sequences cannot filter these, so that the filter goes step by step; none: it can."""
    reasons = [*about_numbers(x), *_about_attention(network), *_about_read_out(network), *_about_density(network)]
    if settings.resample is not SCHEMES.get(settings.resampling):
        reasons.append(f"resampling scheme {settings.resampling!r} is not one that C knows")
    if settings.propose.draws_again:
        reasons.append(f"proposal {settings.proposal!r} draws again once the observation is known")
    if bool(x.isnan().any()):
        reasons += [f"values are missing, and {reason}" for reason in _about_encoder(network)]
    return [f"step by step: {reason}" for reason in reasons]


def explain_step(network: Network, embedding: Tensor) -> list[str]:
    """Why C cannot take a step of the particles, so that torch does it; none: it can."""
    reasons = [*about_numbers(embedding), *_about_attention(network)]
    if embedding.requires_grad and torch.is_grad_enabled():
        reasons.append("gradients are wanted")
    return [f"a step in torch: {reason}" for reason in reasons]


def explain_follow(network: Network, settings: InferenceSettings) -> list[str]:
    """Why a row of a followed series takes more than one call of C, as a step does; none: it does not."""
    like = network.attention.query.weight
    reasons = [*explain_draws(like), *_about_attention(network), *_about_read_out(network), *_about_density(network)]
    reasons += [*_about_encoder(network), *about_factors(network.attention.covariances)]
    if not isinstance(kernel_form(network.observation), Elliptical | None):
        reasons.append("counts and classes are judged by torch")
    if settings.resample is not SCHEMES.get(settings.resampling):
        reasons.append(f"resampling scheme {settings.resampling!r} is not one that C knows")
    if settings.propose.draws_again:
        reasons.append(f"proposal {settings.proposal!r} draws again once the observation is known")
    if _position(network.encoder) is not None:
        reasons.append("positions are encoded")
    read = (*network.encoder.parameters(), *network.attention.parameters(), *network.readout.parameters())
    if not all(tensor.is_contiguous() for tensor in (*read, *network.encoder.buffers())):
        reasons.append("some parameters are not contiguous")
    return [f"a row in several calls: {reason}" for reason in reasons]


def explain_embedding_step(network: Network, x: Tensor) -> list[str]:
    """Why C cannot embed the next inputs of rows, so that torch does it; none: it can."""
    reasons = [*about_numbers(x), *_about_encoder_alone(network)]
    if torch.is_grad_enabled():
        reasons.append("gradients are wanted")
    if _position(network.encoder) is not None:
        reasons.append("positions are encoded")
    return [f"an encoder's step in torch: {reason}" for reason in reasons]


def explain_embedding(network: Network, x: Tensor) -> list[str]:
    """Why inputs that trajectories share cannot be embedded once for all, so that each trajectory is encoded."""
    return [f"trajectories encoded one by one: {reason}" for reason in (*about_numbers(x), *_about_encoder(network))]


def explain_replay(network: Network, embedding: Tensor, noise: Noise) -> list[str]:
    """Why C cannot replay trajectories and give the gradient of it, so that torch does it; none: it can."""
    reasons = [*about_numbers(embedding), *_about_attention(network), *_about_read_out(network)]
    reasons += about_factors(network.attention.covariances)
    if _has_unknown_shift(network):
        reasons.append("the observation model has a shift of its own, whose gradient the kernel does not know")
    reasons += about_noise(noise)
    return [f"a replay in torch: {reason}" for reason in reasons]


def explain_paths(network: Network, like: Tensor, generator: Generator | None = None) -> list[str]:
    """Why C cannot draw forecast paths, so that torch goes step by step; none: it can."""
    reasons = [*about_numbers(like), *_about_attention(network), *_about_read_out(network), *_about_density(network)]
    form, wanted = kernel_form(network.observation), torch.is_grad_enabled()
    if isinstance(form, NegativeBinomial):
        reasons += [*_about_encoder_alone(network), *explain_draws(like), *about_factors(network.attention.covariances)]
        if wanted:
            reasons.append("counts have no gradient")
        if not isinstance(generator, Streams):
            reasons.append("counts are drawn by torch's generator, not by streams of the sequences")
    else:
        reasons += _about_encoder(network)
        if isinstance(form, Categorical):
            reasons.append("classes are drawn by torch")
        if wanted:
            reasons += [f"{why}, and gradients are wanted" for why in about_factors(network.attention.covariances)]
            if isinstance(_position(network.encoder), LearnedPosition):
                reasons.append("positions are learned, and gradients are wanted")
    return [f"paths step by step: {reason}" for reason in reasons]


def can_filter(network: Network, settings: InferenceSettings, x: Float[Tensor, "*batch time n_inputs"]) -> bool:
    """Whether the kernel of whole sequences filters these: `run_filter`."""
    return in_c(explain_filter(network, settings, x))


def can_step(network: Network, embedding: Tensor) -> bool:
    """Whether C takes a step from this embedding: `run_step`."""
    return in_c(explain_step(network, embedding))


def follow_model(network: Network, settings: InferenceSettings) -> FollowModel | None:
    """What follows series in C, row by row; None where torch has a part in it.

    To look for the reasons takes longer than a row: an answer holds until something has changed that it depends on.
    Weights may change where they are, as C reads them there.
    """
    known = _FOLLOW_MODELS.get(network)
    enabled = not about_numbers(network.attention.query.weight)
    if known is not None and known.settings == settings and known.enabled == enabled and known.watch.is_unchanged():
        return known.model
    model = _make_follow_model(network, settings) if in_c(explain_follow(network, settings)) else None
    _FOLLOW_MODELS[network] = _Known(settings, enabled, Watch(network), model)
    return model


def _make_follow_model(network: Network, settings: InferenceSettings) -> FollowModel:
    attention, form, config = network.attention, kernel_form(network.observation), network.config
    encoder = network.encoder.kernel_form()
    assert isinstance(form, Elliptical)
    assert encoder is not None
    constants = FollowSettings(
        attention.window,
        config.n_inputs,
        config.n_targets,
        config.predict_change,
        settings.resampling,
        settings.ess_threshold,
        SELECTION,
        NOISE,
    )
    projections = {name: getattr(attention, name).weight for name in ("query", "key", "value")}
    return FollowModel(layer_tensors(network, read_out=True), encoder, form, projections, constants)


class _Known(NamedTuple):
    settings: InferenceSettings
    enabled: bool
    watch: Watch
    model: FollowModel | None


_FOLLOW_MODELS: "weakref.WeakKeyDictionary[Network, _Known]" = weakref.WeakKeyDictionary()


def can_embed_step(network: Network, x: Tensor) -> bool:
    """Whether C embeds the next inputs of rows: `run_embedding_step`."""
    return in_c(explain_embedding_step(network, x))


def can_embed(network: Network, x: Tensor) -> bool:
    """Whether inputs that trajectories share are embedded once: `run_embedding`."""
    return in_c(explain_embedding(network, x))


def can_replay(network: Network, embedding: Tensor, noise: Noise) -> bool:
    """Whether C replays trajectories: `run_replay`."""
    return in_c(explain_replay(network, embedding, noise))


def can_draw_paths(network: Network, like: Tensor, generator: Generator | None = None) -> bool:
    """Whether C draws forecast paths: `run_paths`."""
    return in_c(explain_paths(network, like, generator))


def kernel_form(observation: ObservationModel) -> Form | None:
    """The form that an observation model tells; None where its class has not said so itself.

    An inherited answer does not count: a subclass may have changed anything that its parent's answer relied on.
    """
    return observation.kernel_form() if "kernel_form" in vars(type(observation)) else None


def _about_attention(network: Network) -> list[str]:
    attention = network.attention
    known = (
        type(attention) is StochasticSelfAttention
        and type(attention.output) is nn.Linear
        and attention.output._parameters["bias"] is None
        and all(
            type(covariance) in (IsotropicCovariance, DiagonalCovariance, FullCovariance)
            for covariance in attention.covariances
        )
    )
    return _change_of(attention, "attention") if known else ["the attention was replaced"]


def _about_read_out(network: Network) -> list[str]:
    if type(network).read_out is not Network.read_out or "read_out" in vars(network):
        return ["the model's method read_out was replaced"]
    readout = network.readout
    parts = list(readout.modules())
    known = (
        tuple(map(type, parts)) in READ_OUTS
        and not any(parameter is None for part in parts for parameter in part._parameters.values())
        and len(readout.projection.weight) == network.observation.n_parameters  # C has room for no more
    )
    if not known:
        return ["the read-out was replaced"]
    return _change_of(readout, "read-out")


def _about_density(network: Network) -> list[str]:
    observation, reasons = network.observation, []
    if kernel_form(observation) is None:
        reasons.append("the observation model has no kernel form")
    if _replaced_methods(observation):
        reasons.append("a method of the observation model was replaced")
    if _has_unknown_shift(network):
        reasons.append("the observation model has a shift of its own, and the kernel adds the last targets")
    return reasons


def _about_encoder(network: Network) -> list[str]:
    reasons = _about_encoder_alone(network)
    if not reasons and type(network.observation).features is not ObservationModel.features:
        return ["the observation model has features of its own"]
    return reasons


def _about_encoder_alone(network: Network) -> list[str]:
    encoder = network.encoder
    inner = encoder.inner if isinstance(encoder, ChangesEncoder) else encoder
    if any("kernel_form" not in vars(type(part)) for part in (encoder, inner)) or encoder.kernel_form() is None:
        return ["the encoder has no kernel form"]
    return _change_of(encoder, "encoder")


def _position(encoder: CausalEncoder) -> nn.Module | None:
    """The encoding of positions that an encoder adds, if any."""
    inner = encoder.inner if isinstance(encoder, ChangesEncoder) else encoder
    return inner.position if isinstance(inner, LinearEncoder) else None


def _change_of(module: nn.Module, name: str) -> list[str]:
    """What was changed in a module, or in a part of it, without changing its type."""
    for part in module.modules():
        if part._forward_hooks or part._forward_pre_hooks:
            return [f"a hook is registered on the {name}"]
        if _replaced_methods(part):
            return [f"a method of the {name} was replaced"]
    return []


def _replaced_methods(part: nn.Module) -> bool:
    """Whether an object has something of its own in place of a method of its class."""
    kind: type = type(part)
    return not vars(part).keys().isdisjoint(_methods(kind))


@functools.cache
def _methods(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if callable(getattr(kind, name)))


def _has_unknown_shift(network: Network) -> bool:
    """Whether last targets are added to the parameters in another way than the kernels do it."""
    observation = network.observation
    if not network.config.predict_change or isinstance(kernel_form(observation), NegativeBinomial):
        return network.config.predict_change and "shift" in vars(observation)
    return type(observation).shift is not ObservationModel.shift or "shift" in vars(observation)


# --- the work -----------------------------------------------------------------------------------------------


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
    form = kernel_form(network.observation)
    assert form is not None
    batch, n_particles, n_steps, _ = noise.query.shape
    gaps = _gaps(network, form, x, n_particles) if isinstance(form, Elliptical) else None
    # Drawn as `select` and `complete` would draw them, step by step.
    n_uniforms = 1 if settings.resampling == "systematic" else n_particles
    uniforms = torch.zeros(n_steps, batch, n_uniforms, dtype=torch.float64)
    own = isinstance(generator, Streams)
    if settings.ess_threshold > 0 and gaps is None and not own:  # the same numbers as one step after the other
        torch.rand(n_steps - 1, batch, n_uniforms, generator=generator, dtype=torch.float64, out=uniforms[1:])
    elif settings.ess_threshold > 0 and isinstance(generator, Streams):
        uniforms = _selection_uniforms(generator, n_steps, n_uniforms)
    for step in range(n_steps if gaps is not None else 0):
        if settings.ess_threshold > 0 and step > 0 and not own:
            torch.rand(batch, n_uniforms, generator=generator, dtype=torch.float64, out=uniforms[step])
        if gaps is not None and isinstance(form, Elliptical):
            _draw_missing(gaps, form, step, in_stage(generator, OBSERVATION, ahead=step))
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


def _selection_uniforms(streams: Streams, n_steps: int, n_uniforms: int) -> Float[Tensor, "time batch n_uniforms"]:
    """What each sequence draws for its selection at each step."""
    steps = streams.steps.unsqueeze(-1) + torch.arange(n_steps)
    each = Streams(streams.keys.repeat_interleave(n_steps), steps.flatten(), SELECTION)
    drawn = each.uniforms((len(each), n_uniforms))
    return drawn.unflatten(0, (len(streams), n_steps)).transpose(0, 1).contiguous()


def _gaps(network: Network, density: Elliptical, x: Tensor, n_particles: int) -> Gaps | None:
    """What the filter needs for missing targets, and where it writes; None where there are none."""
    observed = ~x[:, 1:, : network.config.n_targets].isnan()
    if bool(observed.all()):
        return None
    attention, form, position = network.attention, network.encoder.kernel_form(), _position(network.encoder)
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


def _draw_missing(gaps: Gaps, density: Elliptical, step: int, generator: Generator | None) -> None:
    """Draw what the targets of a step that are missing are made from, in any sequence."""
    observed, normal = gaps.observed[:, step], gaps.normal[:, :, step]
    if bool(observed.all()):
        return
    if gaps.gamma is not None and density.degrees is not None:
        shape = (density.degrees + observed.sum(dim=-1, keepdim=True).to(normal)) / 2
        gaps.gamma[:, :, step] = standard_gamma(shape.expand(-1, normal.shape[1]), generator)
    gaps.normal[:, :, step] = standard_normal(tuple(normal.shape), normal, generator)


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
    layer = layer_tensors(network, read_out=in_c([f"read-out in torch: {why}" for why in _about_read_out(network)]))
    means, eps = _means(network, embedding), _for_factors(network.attention, noise)
    caches = (keys, values, trajectories)
    return mutate_particles(layer, means, embedding, eps, *caches, n_slots, network.attention.window, past, held)


def _means(network: Network, embedding: Float[Tensor, "*batch d_model"]) -> tuple[Tensor, Tensor, Tensor]:
    """The queries, keys and values without their noise: each row by itself, so that no other can change its bits."""
    attention = network.attention
    weight = torch.cat([part.weight.detach() for part in (attention.query, attention.key, attention.value)])
    query, key, value = map_rows(weight, embedding.detach()).unflatten(-1, (3, -1)).unbind(-2)
    return query, key, value


def follow_block(model: FollowModel, state: ParticleState) -> FollowBlock:
    """Series of a state that stays where it is, whose slots are a ring, for rows that come one by one."""
    tensors = (
        state.last,
        state.keys,
        state.values,
        state.trajectories,
        state.log_weights,
        state.informed,
        state.position,
        state.n_slots,
        *state.encoder_state,
    )
    known: tuple[FollowModel, tuple[Tensor, ...], FollowBlock] | None = vars(state).get(FOLLOW_BLOCK)
    if known is not None and known[0] is model and all(map(operator.is_, known[1], tensors)):
        return known[2]
    last, keys, values, trajectories, log_weights, informed, position, n_slots = tensors[:8]
    rest = (trajectories, log_weights, informed, position, n_slots, position)
    found = model.block(FollowTensors(last, *_of_encoder(state.encoder_state), keys, values, None, *rest))
    vars(state)[FOLLOW_BLOCK] = (model, tensors, found)
    return found


def _of_encoder(state: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """The inputs before the last, and what a GRU remembers, (row, d), of an encoder's state."""
    previous = next((part for part in state if part.ndim == 2), None)
    hidden = next((part for part in state if part.ndim == 3), None)
    return previous, None if hidden is None else hidden.flatten(1)


def run_follow(
    model: FollowModel,
    state: ParticleState,
    stream_keys: Int[Tensor, "batch"],
    targets: Float[Tensor, "batch n_targets"],
) -> Followed:
    """Take the step of all particles up to a row, in place, and judge the row; needs a `follow_model`.

    Particles have got what is known of the row already, and room for one more slot.
    """
    state.trajectories, state.keys, state.values = (
        part.contiguous() for part in (state.trajectories, state.keys, state.values)
    )
    encoder_state = [part.clone(memory_format=torch.contiguous_format) for part in state.encoder_state]
    previous, hidden = _of_encoder(encoder_state)
    log_weights = state.log_weights.clone(memory_format=torch.contiguous_format)
    series = FollowTensors(
        state.last,
        previous,
        hidden,
        state.keys,
        state.values,
        state.held,
        state.trajectories,
        log_weights,
        state.informed.clone(),
        state.position.contiguous(),
        state.n_slots.contiguous(),
        stream_keys.contiguous(),
    )
    found = model.step(series, targets)
    state.log_weights, state.informed, state.encoder_state = log_weights, series.informed, tuple(encoder_state)
    state.trajectories_are_own = state.trajectories_are_own and not bool(found.resampled.any())
    state.n_slots, state.position = state.n_slots + 1, state.position + 1
    return found


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

    Needs `can_embed`. Trajectories share their inputs up to the first gap, and those that pass through the same
    particle have the same inputs up to there; an encoder that remembers nothing shares whatever was observed.

    Args:
        network: the network.
        inputs: X_0, ..., X_{T-1} as each trajectory completed them.
        observed: whether they had no gap.
        particles: that each ancestral trajectory passes through, one for each of X_1, ..., X_T; None: they are not
            ancestral, and what they share is not known.
    """
    form, position = network.encoder.kernel_form(), _position(network.encoder)
    assert form is not None
    batch, n_trajectories, n_steps, _ = inputs.shape
    shared = observed
    if form.recurrent is not None:
        shared = observed.int().cumprod(dim=1).bool()
    elif form.level_scale is not None:  # sees the input before, too
        shared = torch.cat((observed[:, :1], observed[:, 1:] & observed[:, :-1]), dim=1)
    branches = torch.arange(n_trajectories, device=inputs.device).expand(batch, -1).unsqueeze(-1)
    if particles is not None:
        branches = torch.cat((torch.zeros_like(particles[:, :, :1]), particles[:, :, :-1]), dim=2)
    branches = torch.where(shared.unsqueeze(1), 0, 1 + branches)
    among = trees(branches, 1 + int(branches.max()))
    x = among.gathered(inputs)
    if form.level_scale is not None and form.change_scale is not None:
        previous = torch.where(among.parents.unsqueeze(-1) < 0, x, x[among.parents])
        x = torch.cat((x / form.level_scale, torch.asinh((x - previous) / form.change_scale)), dim=-1)
    if form.recurrent is not None:
        return SharedEmbedding(encode_trees(form, x, among), among.nodes)
    embedding = nn.functional.linear(x, form.weight, form.bias)
    if position is not None:
        steps = among.nodes.new_empty(len(x))
        steps[among.nodes] = torch.arange(n_steps, device=x.device)
        embedding = embedding + position(0, n_steps).to(embedding)[steps]
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
    form, density = encoder.kernel_form(), kernel_form(network.observation)
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
    position = _position(encoder)
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


def can_seed_paths(network: Network, like: Tensor) -> bool:
    """Whether C makes the noise of paths from seeds, so that it need not be held; needs `can_draw_paths`."""
    reasons = [f"noise of paths in torch: {reason}" for reason in about_factors(network.attention.covariances)]
    return not torch.is_grad_enabled() and in_c([*explain_draws(like), *reasons])


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
