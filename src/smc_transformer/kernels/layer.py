"""A model's parameters as the C kernels want them (`Layer` in layer.h)."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from smc_transformer.kernels.library import COUNT, NUMBER, POINTER
from smc_transformer.nn.covariance import COVARIANCES, Covariance, FullCovariance
from smc_transformer.nn.readout import LinearReadout, TransformerReadout

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

NOISES = ("query_noise", "key_noise", "value_noise", "attention_noise")
FACTORS = ("query_factor", "key_factor", "value_factor", "attention_factor")
NET = ("gain_1", "bias_1", "inner", "inner_bias", "outer", "outer_bias", "gain_2", "bias_2")


class Layer(ctypes.Structure):
    """Mirror of the C structure."""

    _fields_ = [
        *((name, COUNT) for name in ("d", "heads", "d_ff", "n_out")),
        *((name, POINTER) for name in FACTORS),
        ("output", POINTER),
        *((name, POINTER) for name in NET),
        *((name, POINTER) for name in ("projection", "projection_bias")),
        *((name, NUMBER) for name in ("epsilon_1", "epsilon_2")),
    ]


def point(structure: ctypes.Structure, tensors: Mapping[str, Tensor | None]) -> None:
    """Set pointers to contiguous tensors, which are kept alive as long as the structure."""
    kept: list[Tensor] = getattr(structure, "kept", [])
    for name, tensor in tensors.items():
        if tensor is not None:
            kept.append(tensor)
        setattr(structure, name, None if tensor is None else tensor.data_ptr())
    structure.kept = kept


class Strides(ctypes.Structure):
    """Mirror of the C structure in common.h."""

    _fields_ = [(name, COUNT) for name in ("sequence", "particle", "step")]


def strides_of(tensors: Sequence[Tensor], like: Tensor) -> tuple[list[Tensor], Strides]:
    """Tensors (batch, particle, time, d) whose rows of d numbers, of the type of `like`, C can find.

    They are copied only if that is not so, or if they lie in memory differently.
    """
    tensors = [tensor.to(like.dtype) for tensor in tensors]
    first = tensors[0].stride()
    if first[-1] != 1 or any(tensor.stride() != first for tensor in tensors):
        tensors = [tensor.contiguous() for tensor in tensors]
    return tensors, Strides(*tensors[0].stride()[:3])


def has_attention(model: "SMCTransformer") -> bool:
    """Whether the kernels know this model's attention: a user may have put something else in its place."""
    from smc_transformer.nn.attention import StochasticSelfAttention

    attention = model.attention
    return (
        type(attention) is StochasticSelfAttention
        and type(attention.output) is nn.Linear
        and len(list(attention.output.parameters())) == 1  # no bias
        and all(type(covariance) in COVARIANCES.values() for covariance in attention.covariances)
        and not _hooked(attention)
    )


def _hooked(module: nn.Module) -> bool:
    return any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def has_layer(model: "SMCTransformer") -> bool:
    """Whether the kernels know this model's attention and read-out."""
    from smc_transformer.network import Network

    readout, distribution = model.readout, model.observation
    changed = type(model).read_out is not Network.read_out or "components" in vars(distribution) or _hooked(readout)
    if changed or not has_attention(model):
        return False
    if type(readout) is LinearReadout:
        return type(readout.projection) is nn.Linear
    if type(readout) is not TransformerReadout or len(readout.feed_forward) != 3:
        return False
    parts = (readout.attention_norm, *readout.feed_forward, readout.output_norm, readout.projection)
    known = (nn.LayerNorm, nn.Linear, nn.ReLU, nn.Linear, nn.LayerNorm, nn.Linear)
    return tuple(map(type, parts)) == known


def make_layer(model: "SMCTransformer") -> Layer:
    """The parameters of a model; those of an unknown read-out are left out."""
    return layer_of(layer_parameters(model), model.attention.n_heads, model.observation.n_parameters, model.readout)


def layer_parameters(model: "SMCTransformer") -> dict[str, Tensor]:
    """The parameters by their names in the C structure."""
    attention, readout = model.attention, model.readout
    parameters = dict(zip(FACTORS, map(diagonal_factor, attention.covariances), strict=True))
    parameters["output"] = attention.output.weight
    if isinstance(readout, TransformerReadout):
        first, second = readout.attention_norm, readout.output_norm
        inner, _, outer = readout.feed_forward
        assert isinstance(inner, nn.Linear)
        assert isinstance(outer, nn.Linear)
        weights = (first.weight, first.bias, inner.weight, inner.bias, outer.weight, outer.bias)
        parameters |= dict(zip(NET, (*weights, second.weight, second.bias), strict=True))
    if has_layer(model):
        parameters["projection"], parameters["projection_bias"] = readout.projection.weight, readout.projection.bias
    return parameters


def layer_of(parameters: dict[str, Tensor], n_heads: int, n_outputs: int, readout: nn.Module) -> Layer:
    """The structure that points to given parameters."""
    parameters = {name: parameter.contiguous() for name, parameter in parameters.items()}
    layer = Layer(d=len(parameters["output"]), heads=n_heads, d_ff=1, n_out=n_outputs)
    if isinstance(readout, TransformerReadout):
        layer.d_ff = len(parameters["inner"])
        layer.epsilon_1, layer.epsilon_2 = readout.attention_norm.eps, readout.output_norm.eps
    point(layer, parameters)
    return layer


def diagonal_factor(covariance: Covariance) -> Tensor:
    """The scale of each coordinate; ones for a full covariance, whose noise `prescaled` has already scaled."""
    factor = covariance.factor
    if isinstance(covariance, FullCovariance):
        return factor.new_ones(covariance.size)
    return factor.expand(covariance.size).contiguous()


def prescaled(covariance: Covariance, noise: Tensor) -> Tensor:
    """The noise that a kernel multiplies with `diagonal_factor`."""
    return covariance.scale(noise) if isinstance(covariance, FullCovariance) else noise
