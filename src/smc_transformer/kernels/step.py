"""One step of all particles: streams, gaps, forecasts, and what the whole-sequence filter does not know."""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.kernels.layer import LayerTensors
from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import COUNT, MEANS, NOISES, POINTER, Step, point, strides_of


class PastSlots(NamedTuple):
    """Slots that were filled before, and that the particles share with others."""

    keys: Float[Tensor, "batch particle slot d"]
    values: Float[Tensor, "batch particle slot d"]
    trajectories: Int[Tensor, "batch particle slot"]
    n_slots: Int[Tensor, "batch"]  # how many of them each sequence has: the first ones
    parents: Int[Tensor, "batch path"]  # the particle that each of the present ones descends from


def mutate_particles(
    layer: LayerTensors,
    means: Sequence[Float[Tensor, "batch _ d"]],
    embedding: Float[Tensor, "batch _ d"],
    noise: Sequence[Float[Tensor, "batch particle d"]],
    keys: Float[Tensor, "held particle slot d"],
    values: Float[Tensor, "held particle slot d"],
    trajectories: Int[Tensor, "batch particle slot"],
    n_slots: Int[Tensor, "batch"],
    window: int | None,
    past: PastSlots | None = None,
    held: Int[Tensor, "batch"] | None = None,
) -> tuple[Float[Tensor, "batch particle d"], Float[Tensor, "batch particle n_out"] | None]:
    """Write the latents of the next slot of each sequence and attend over its window, which may reach into a past.

    Keys and values may be those of more sequences: `held` tells where those of each sequence are among them. A sequence
    that has written all slots already writes the oldest again, of a ring as long as the window.

    Returns:
        z, and the read-out if the layer has one.
    """
    (batch, n_particles, capacity), d_model = trajectories.shape, keys.shape[-1]
    z = keys.new_empty(batch, n_particles, d_model)
    outputs = None if layer.projection is None else keys.new_empty(batch, n_particles, len(layer.projection))
    eps, strides = strides_of([part.unsqueeze(2) for part in noise], keys)
    task = Step(
        batch=batch,
        particles=n_particles,
        owners=embedding.shape[1],
        noise_strides=strides,
        capacity=capacity,
        window=window or 0,
    )
    tensors: dict[str, Tensor | None] = {
        **dict(zip(MEANS, (part.contiguous() for part in (*means, embedding)), strict=True)),
        **dict(zip(NOISES, eps, strict=True)),
        "keys": keys,
        "values": values,
        "held": held,
        "trajectories": trajectories,
        "n_slots": n_slots,
        "z": z,
        "parameters": outputs,
    }
    if past is not None:
        names = ("past_keys", "past_values", "past_trajectories", "past_n_slots", "parents")
        tensors |= dict(zip(names, past, strict=True))
        task.past_particles, task.past_slots = past.trajectories.shape[1:]
    point(task, tensors)
    work = z.numel() * (4 * d_model + capacity)
    check(loaded(keys).mutate_particles(ctypes.byref(task), ctypes.byref(layer.structure()), threads(work)))
    return z, outputs


def inherit_trajectories(
    trajectories: Int[Tensor, "batch particle slot"],
    ancestors: Int[Tensor, "batch particle"],
    held: slice,
    like: Tensor,
) -> None:
    """Let children take over the held slots of their parents, in place, by the kernels for numbers like `like`."""
    ancestors = ancestors.contiguous()
    sizes = (*trajectories.shape, held.start, held.stop)
    pointers = (POINTER(trajectories.data_ptr()), POINTER(ancestors.data_ptr()))
    check(loaded(like).inherit_trajectories(*pointers, *map(COUNT, sizes), threads(trajectories.numel())))
