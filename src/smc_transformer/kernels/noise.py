"""Standard normal noise, drawn by all threads."""

import ctypes

import torch
from torch import Generator, Tensor

from smc_transformer.kernels.library import loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER


def fill_normal(out: Tensor, generator: Generator | None) -> Tensor:
    """Fill a contiguous tensor; the same seed gives the same numbers whatever the number of threads.

    In any type, the numbers have the precision of float32.
    """
    seed = torch.randint(2**63 - 1, (), generator=generator)
    pointer, size = POINTER(out.data_ptr()), COUNT(out.numel())
    loaded(out).fill_normal(pointer, size, ctypes.c_uint64(int(seed)), threads(8 * out.numel()))
    return out
