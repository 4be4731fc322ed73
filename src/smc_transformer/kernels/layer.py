"""A model's parameters as the C kernels want them (`Layer` in layer.h)."""

import ctypes
from typing import TYPE_CHECKING, Any

from torch import Tensor

from smc_transformer.nn.covariance import Covariance, FullCovariance
from smc_transformer.nn.readout import LinearReadout, TransformerReadout

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

POINTER, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double

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


def point(structure: ctypes.Structure, tensors: dict[str, Tensor | None]) -> None:
    """Set pointers to contiguous tensors, which are kept alive as long as the structure."""
    kept: list[Tensor] = getattr(structure, "kept", [])
    for name, tensor in tensors.items():
        if tensor is not None:
            kept.append(tensor)
        setattr(structure, name, None if tensor is None else tensor.data_ptr())
    structure.kept = kept


def has_layer(model: "SMCTransformer") -> bool:
    """Whether the kernels know this model's read-out."""
    return type(model.readout) in (TransformerReadout, LinearReadout)


def make_layer(model: "SMCTransformer") -> Layer:
    """The parameters of a model; those of an unknown read-out are left out."""
    attention, readout = model.attention, model.readout
    layer = Layer(d=model.config.d_model, heads=attention.n_heads, d_ff=1, n_out=model.observation.n_parameters)
    tensors: dict[str, Any] = dict(zip(FACTORS, map(diagonal_factor, attention.covariances), strict=True))
    tensors["output"] = attention.output.weight
    if isinstance(readout, TransformerReadout):
        first, second = readout.attention_norm, readout.output_norm
        inner, outer = readout.feed_forward[0], readout.feed_forward[2]
        weights = (first.weight, first.bias, inner.weight, inner.bias, outer.weight, outer.bias)
        tensors |= dict(zip(NET, (*weights, second.weight, second.bias), strict=True))
        layer.d_ff = inner.out_features
        layer.epsilon_1, layer.epsilon_2 = first.eps, second.eps
    if has_layer(model):
        tensors["projection"], tensors["projection_bias"] = readout.projection.weight, readout.projection.bias
    point(layer, tensors)
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
