"""The read-outs along lines with their gradient, without a forward pass: the filter has computed them already."""

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from smc_transformer.kernels.layer import (
    FACTORS,
    NET,
    NOISES,
    Strides,
    has_layer,
    layer_of,
    layer_parameters,
    point,
    strides_of,
)
from smc_transformer.kernels.library import COUNT, POINTER, check, library, threads
from smc_transformer.laws.base import ObservationLaw
from smc_transformer.nn.covariance import FullCovariance

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer
    from smc_transformer.nn.attention import Noise

MEANS = ("query_mean", "key_mean", "value_mean", "embedding")
GROUPS = 64
"""Sequences are summed over in at most so many groups: the order of sums must not depend on the threads."""


class Replay(ctypes.Structure):
    """Mirror of the C structure in replay.c."""

    _fields_ = [
        *((name, COUNT) for name in ("batch", "n_lines", "particles", "steps", "window", "owners", "groups")),
        *((name, POINTER) for name in (*MEANS, *NOISES)),
        ("noise_strides", Strides),
        *((name, POINTER) for name in ("lines", "gradient")),
        *((f"{name}_gradient", POINTER) for name in MEANS),
        ("sums", POINTER),
        ("n_sums", COUNT),
    ]


def replay_read_outs(
    model: "SMCTransformer", embedding: Tensor, noise: "Noise", lines: Tensor, read_outs: Tensor
) -> Tensor | None:
    """The filter's read-outs along lines, as functions of the model's parameters; None where torch must replay.

    Args:
        model: the model.
        embedding: (batch, 1 or line, time, d_model).
        noise: of all particles, (batch, particle, time, d_model).
        lines: (batch, line, time).
        read_outs: parameters of the law of X_t that the filter found along the lines, (batch, line, time, n).
    """
    attention = model.attention
    full = any(isinstance(covariance, FullCovariance) for covariance in attention.covariances)
    shifts = model.config.predict_change and type(model.observation).shift is not ObservationLaw.shift
    kernels = library(embedding)
    if full or shifts or kernels is None or not has_layer(model):
        return None
    means = attention.means(embedding)
    parameters = layer_parameters(model)
    settings = (kernels, attention.n_heads, attention.window, tuple(parameters), model.readout)
    return _ReplayReadOuts.apply(settings, read_outs, lines, *noise, *means, embedding, *parameters.values())


class _ReplayReadOuts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: Any, read_outs: Tensor, lines: Tensor, *tensors: Tensor) -> Tensor:
        ctx.settings = settings
        noise, others = tensors[:4], tensors[4:]
        ctx.save_for_backward(lines, *noise, *(tensor.contiguous() for tensor in others))
        return read_outs.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kernels, n_heads, window, names, readout = ctx.settings
        lines, *tensors = ctx.saved_tensors
        noise, means, parameters = tensors[:4], tensors[4:8], dict(zip(names, tensors[8:], strict=True))
        noise, strides = strides_of(noise, gradient)
        layer = layer_of(parameters, n_heads, gradient.shape[-1], readout)
        batch, n_particles, n_steps, _ = noise[0].shape
        task = Replay(
            batch=batch,
            n_lines=lines.shape[1],
            particles=n_particles,
            steps=n_steps,
            window=window or 0,
            owners=means[0].shape[1],
            groups=min(batch, GROUPS),
            noise_strides=strides,
            n_sums=int(kernels.count_sums(ctypes.byref(layer))),
        )
        mean_gradients = [torch.zeros_like(part) for part in means]
        sums = gradient.new_zeros(task.groups, task.n_sums)
        point(
            task,
            {
                **dict(zip(MEANS, means, strict=True)),
                **dict(zip(NOISES, noise, strict=True)),
                "lines": lines,
                "gradient": gradient.contiguous(),
                **{f"{name}_gradient": part for name, part in zip(MEANS, mean_gradients, strict=True)},
                "sums": sums,
            },
        )
        check(
            kernels.replay_backward(
                ctypes.byref(task), ctypes.byref(layer), threads(noise[0].numel() * 12 * means[0].shape[-1])
            )
        )
        gradients = _unpacked(sums.sum(dim=0), parameters)
        return None, None, None, None, None, None, None, *mean_gradients, *gradients


def _unpacked(sums: Tensor, parameters: dict[str, Tensor]) -> list[Tensor]:
    """The gradients of the parameters, which C keeps one after the other with padded rows."""
    gradients, place = {}, 0
    for name in (*FACTORS, "output", *NET, "projection", "projection_bias"):
        if name not in parameters:
            continue
        shape = parameters[name].shape
        room = [_padded(size, sums.dtype) for size in shape]
        size = torch.Size(room).numel()
        padded = sums[place : place + size].view(room)
        gradients[name] = padded[tuple(slice(0, size) for size in shape)].contiguous()
        place += size
    return [gradients[name] for name in parameters]


def _padded(size: int, dtype: torch.dtype) -> int:
    lanes = 64 // dtype.itemsize
    return -(-size // lanes) * lanes
