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
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.kernels.choice import about_numbers, in_c
from smc_transformer.kernels.densities import Categorical, Elliptical, Form, NegativeBinomial
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.nn.conditions import about_factors, about_noise, explain_draws
from smc_transformer.nn.covariance import DiagonalCovariance, FullCovariance, IsotropicCovariance
from smc_transformer.nn.encoders import CausalEncoder, ChangesEncoder
from smc_transformer.nn.encoders.linear import LinearEncoder
from smc_transformer.nn.encoders.position import LearnedPosition
from smc_transformer.nn.observation import ObservationModel
from smc_transformer.nn.readout import LinearReadout, TransformerReadout
from smc_transformer.nn.streams import Streams
from smc_transformer.smc.resampling import multinomial, residual, stratified, systematic

SCHEMES = {"multinomial": multinomial, "residual": residual, "stratified": stratified, "systematic": systematic}
"""The resampling schemes as C knows them: another function may have been given one of their names."""

READ_OUTS = (
    (LinearReadout, nn.Linear),
    (TransformerReadout, nn.LayerNorm, nn.Sequential, nn.Linear, nn.ReLU, nn.Linear, nn.LayerNorm, nn.Linear),
)
"""The types of a read-out and of all its parts, in their order."""


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
    if position_of(network.encoder) is not None:
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
    if position_of(network.encoder) is not None:
        reasons.append("positions are encoded")
    return [f"an encoder's step in torch: {reason}" for reason in reasons]


def explain_embedding(network: Network, x: Tensor) -> list[str]:
    """Why inputs that trajectories share cannot be embedded once for all, so that each trajectory is encoded."""
    return [f"trajectories encoded one by one: {reason}" for reason in (*about_numbers(x), *_about_encoder(network))]


def explain_replay(network: Network, like: Tensor, noise: Noise) -> list[str]:
    """Why C cannot replay trajectories and give the gradient of it, so that torch does it; none: it can."""
    reasons = [*about_numbers(like), *_about_attention(network), *_about_read_out(network)]
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
            if isinstance(position_of(network.encoder), LearnedPosition):
                reasons.append("positions are learned, and gradients are wanted")
    return [f"paths step by step: {reason}" for reason in reasons]


def can_filter(network: Network, settings: InferenceSettings, x: Float[Tensor, "*batch time n_inputs"]) -> bool:
    """Whether the kernel of whole sequences filters these: `run_filter`."""
    return in_c(explain_filter(network, settings, x))


def can_step(network: Network, embedding: Tensor) -> bool:
    """Whether C takes a step from this embedding: `run_step`."""
    return in_c(explain_step(network, embedding))


def can_read_out(network: Network) -> bool:
    """Whether C also reads out what a step attends to."""
    return in_c([f"read-out in torch: {reason}" for reason in _about_read_out(network)])


def can_embed_step(network: Network, x: Tensor) -> bool:
    """Whether C embeds the next inputs of rows: `run_embedding_step`."""
    return in_c(explain_embedding_step(network, x))


def can_embed(network: Network, x: Tensor) -> bool:
    """Whether inputs that trajectories share are embedded once: `run_embedding`."""
    return in_c(explain_embedding(network, x))


def can_replay(network: Network, like: Tensor, noise: Noise) -> bool:
    """Whether C replays trajectories: `run_replay`."""
    return in_c(explain_replay(network, like, noise))


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


def position_of(encoder: CausalEncoder) -> nn.Module | None:
    """The encoding of positions that an encoder adds, if any."""
    inner = encoder.inner if isinstance(encoder, ChangesEncoder) else encoder
    return inner.position if isinstance(inner, LinearEncoder) else None


def _change_of(module: nn.Module, name: str) -> list[str]:
    """What was changed in a module, or in a part of it, without changing its type."""
    for part in _parts(module):
        if part._forward_hooks or part._forward_pre_hooks:
            return [f"a hook is registered on the {name}"]
        if _replaced_methods(part):
            return [f"a method of the {name} was replaced"]
    return []


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """A module and all of its parts, as `modules()` gives them, but quicker: one in two places comes twice."""
    yield module
    for part in module._modules.values():
        if part is not None:
            yield from _parts(part)


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
    if not network.config.predict_change:
        return False
    if "shift" in vars(observation):
        return True
    own = type(observation).shift is not ObservationModel.shift
    return own and not isinstance(kernel_form(observation), NegativeBinomial)


def can_seed_paths(network: Network, like: Tensor) -> bool:
    """Whether C makes the noise of paths from seeds, so that it need not be held; needs `can_draw_paths`."""
    reasons = [f"noise of paths in torch: {reason}" for reason in about_factors(network.attention.covariances)]
    return not torch.is_grad_enabled() and in_c([*explain_draws(like), *reasons])
