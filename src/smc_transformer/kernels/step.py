"""One step of all particles: streams, gaps, forecasts, and what the whole-sequence filter does not know."""

import ctypes
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from smc_transformer.kernels.layer import (
    NOISES,
    Strides,
    has_attention,
    has_layer,
    make_layer,
    point,
    prescaled,
    strides_of,
)
from smc_transformer.kernels.library import COUNT, POINTER, check, library, threads
from smc_transformer.nn.attention import Noise

if TYPE_CHECKING:
    from smc_transformer.inference.state import Past
    from smc_transformer.model import SMCTransformer


class Step(ctypes.Structure):
    """Mirror of the C structure in step.c."""

    _fields_ = [
        *((name, COUNT) for name in ("batch", "particles", "owners")),
        *((name, POINTER) for name in ("query_mean", "key_mean", "value_mean", "embedding")),
        *((name, POINTER) for name in NOISES),
        ("noise_strides", Strides),
        *((name, POINTER) for name in ("keys", "values", "trajectories")),
        *((name, COUNT) for name in ("capacity", "slot", "first", "last")),
        *((name, POINTER) for name in ("past_keys", "past_values", "past_trajectories", "parents")),
        *((name, COUNT) for name in ("past_particles", "past_slots", "past_first")),
        *((name, POINTER) for name in ("z", "parameters")),
    ]


def can_mutate(model: "SMCTransformer", like: Tensor) -> bool:
    """Whether the kernel can take a step of this model, with numbers like these."""
    return library(like) is not None and has_attention(model)


def mutate_particles(
    model: "SMCTransformer",
    embedding: Tensor,
    noise: Noise,
    keys: Tensor,
    values: Tensor,
    trajectories: Tensor,
    slot: int,
    window: slice,
    past: "Past | None" = None,
    past_first: int = 0,
) -> tuple[Tensor, Tensor | None] | None:
    """Write the latents of a slot and attend over the window, and over a past from `past_first` on.

    Returns:
        z and the read-out (None where C does not know it); or None where torch has to do all of it.
    """
    kernels = library(keys)
    if kernels is None or not can_mutate(model, keys):
        return None
    batch, n_particles, capacity, d_model = keys.shape
    embedding = embedding.contiguous()
    means = model.attention.means(embedding)
    z = keys.new_empty(batch, n_particles, d_model)
    parameters = keys.new_empty(batch, n_particles, model.observation.n_parameters) if has_layer(model) else None
    pairs = zip(model.attention.covariances, noise, strict=True)
    eps, strides = strides_of([prescaled(covariance, part).unsqueeze(2) for covariance, part in pairs], keys)
    task = Step(
        batch=batch,
        particles=n_particles,
        owners=embedding.shape[1],
        noise_strides=strides,
        capacity=capacity,
        slot=slot,
        first=window.start,
        last=window.stop,
    )
    tensors: dict[str, Tensor | None] = {
        "query_mean": means.query,
        "key_mean": means.key,
        "value_mean": means.value,
        "embedding": embedding,
        **dict(zip(NOISES, eps, strict=True)),
        "keys": keys,
        "values": values,
        "trajectories": trajectories,
        "z": z,
        "parameters": parameters,
    }
    if past is not None:
        names = ("past_keys", "past_values", "past_trajectories", "parents")
        tensors |= dict(zip(names, past, strict=True))
        task.past_particles, task.past_slots, task.past_first = *past.trajectories.shape[1:], past_first
    layer = make_layer(model)
    point(task, tensors)
    check(
        kernels.mutate_particles(
            ctypes.byref(task), ctypes.byref(layer), threads(z.numel() * (4 * d_model + window.stop))
        )
    )
    return z, parameters


def inherit_trajectories(trajectories: Tensor, ancestors: Tensor, held: slice) -> bool:
    """Let children take over the held slots of their parents, in place; False where torch has to do it."""
    kernels = library(trajectories.new_empty(0, dtype=torch.float32))
    if kernels is None:
        return False
    ancestors = ancestors.contiguous()
    sizes = (*trajectories.shape, held.start, held.stop)
    pointers = (POINTER(trajectories.data_ptr()), POINTER(ancestors.data_ptr()))
    check(kernels.inherit_trajectories(*pointers, *map(COUNT, sizes), threads(trajectories.numel())))
    return True
