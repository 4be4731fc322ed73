"""Causal self-attention of whole trajectories over a window, with gradients."""

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import Attention, point

Latents = Float[Tensor, "batch trajectory time d"]


def attend_trajectories(query: Latents, key: Latents, value: Latents, n_heads: int, window: int | None) -> Latents:
    """The contexts of queries, keys and values."""
    context: Tensor = _AttendTrajectories.apply(query, key, value, n_heads, window)
    return context


class _AttendTrajectories(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, n_heads: int, window: int | None) -> Tensor:
        kernels = loaded(query)
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        context = torch.empty_like(query)
        log_total = query.new_empty(*query.shape[:-2], n_heads, query.shape[-2])
        task = _task(query, n_heads, window)
        point(task, {"query": query, "key": key, "value": value, "context": context, "log_total": log_total})
        check(kernels.attend_trajectories(ctypes.byref(task), threads(query.numel() * query.shape[-2])))
        ctx.save_for_backward(query, key, value, context, log_total)
        ctx.settings, ctx.kernels = (n_heads, window), kernels
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, context, log_total = ctx.saved_tensors
        gradients = [torch.empty_like(part) for part in (query, key, value)]
        task = _task(query, *ctx.settings)
        tensors = {"query": query, "key": key, "value": value, "context": context, "log_total": log_total}
        names = ("query_gradient", "key_gradient", "value_gradient")
        tensors |= {"context_gradient": gradient.contiguous(), **dict(zip(names, gradients, strict=True))}
        point(task, tensors)
        check(ctx.kernels.attend_trajectories_backward(ctypes.byref(task), threads(query.numel() * query.shape[-2])))
        return *gradients, None, None


def _task(query: Tensor, n_heads: int, window: int | None) -> Attention:
    *rows, n_steps, d_model = query.shape
    return Attention(rows=torch.Size(rows).numel(), steps=n_steps, d=d_model, heads=n_heads, window=window or 0)
