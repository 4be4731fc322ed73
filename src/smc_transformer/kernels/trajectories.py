"""Latents along ancestral trajectories, with gradients: mean + factor * noise[trajectory]."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from smc_transformer.kernels.library import loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER, strides_of


def perturb_trajectories(
    mean: Float[Tensor, "batch _ time d"] | None,
    factor: Float[Tensor, "d"],
    noise: Float[Tensor, "batch particle time d"],
    trajectories: Int[Tensor, "batch trajectory time"],
) -> Float[Tensor, "batch trajectory time d"]:
    """The latents of trajectories, with the noise of all particles; there is no gradient for it. No mean: zero."""
    latents: Tensor = _PerturbTrajectories.apply(mean, factor, noise, trajectories.contiguous())
    return latents


class _PerturbTrajectories(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor | None, factor: Tensor, noise: Tensor, trajectories: Tensor) -> Tensor:
        kernels = loaded(noise)
        mean = None if mean is None else mean.contiguous()
        factor = factor.contiguous()
        (noise,), strides = strides_of([noise], factor)
        batch, _, n_steps, d_model = noise.shape
        n_trajectories = trajectories.shape[1]
        out = noise.new_empty(batch, n_trajectories, n_steps, d_model)
        kernels.perturb_trajectories(
            POINTER(None if mean is None else mean.data_ptr()),
            COUNT(0 if mean is None else mean.shape[1]),
            POINTER(factor.data_ptr()),
            POINTER(noise.data_ptr()),
            ctypes.byref(strides),
            POINTER(trajectories.data_ptr()),
            POINTER(out.data_ptr()),
            *map(COUNT, (batch, n_trajectories, n_steps, d_model)),
            threads(out.numel()),
        )
        ctx.save_for_backward(noise, trajectories)
        ctx.kernels = kernels
        ctx.owners = None if mean is None else mean.shape[1]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        noise, trajectories = ctx.saved_tensors
        kernels, gradient = ctx.kernels, gradient.contiguous()
        (noise,), strides = strides_of([noise], gradient)
        batch, _, n_steps, d_model = noise.shape
        n_trajectories = trajectories.shape[1]
        shared = ctx.owners == 1 and ctx.needs_input_grad[0]
        mean_gradient = gradient.new_empty(batch, 1, n_steps, d_model) if shared else None
        factor_gradient = gradient.new_empty(batch, d_model)
        kernels.perturb_trajectories_backward(
            POINTER(gradient.data_ptr()),
            POINTER(noise.data_ptr()),
            ctypes.byref(strides),
            POINTER(trajectories.data_ptr()),
            POINTER(None if mean_gradient is None else mean_gradient.data_ptr()),
            POINTER(factor_gradient.data_ptr()),
            *map(COUNT, (batch, n_trajectories, n_steps, d_model)),
            threads(gradient.numel()),
        )
        if not shared and ctx.owners is not None and ctx.needs_input_grad[0]:
            mean_gradient = gradient
        return mean_gradient, factor_gradient.sum(dim=0), None, None
