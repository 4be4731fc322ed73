"""Standard normal noise, drawn by all threads."""

import ctypes

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from smc_transformer.kernels.library import loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER


def fill_normal(out: Tensor, generator: Generator | None) -> Tensor:
    """Fill a contiguous tensor; the same seed gives the same numbers whatever the number of threads.

    In any type, the numbers have the precision of float32.
    """
    pointer, size, seed = POINTER(out.data_ptr()), COUNT(out.numel()), ctypes.c_uint64(int(draw_seed(generator)))
    loaded(out).fill_normal(pointer, size, seed, threads(8 * out.numel()))
    return out


def draw_seed(generator: Generator | None) -> Int[Tensor, ""]:
    """The seed of the next numbers: whoever makes them from it makes those that `fill_normal` would."""
    return torch.randint(2**63 - 1, (), generator=generator)
