"""Standard normal noise, drawn by all threads."""

import ctypes

import torch
from torch import Generator, Tensor

from smc_transformer.kernels.library import library, threads


def standard_normal(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Standard normal numbers like `like`; the same seed gives the same numbers whatever the number of threads.

    Only in float32: the kernel's numbers have that precision.
    """
    kernels = library(like) if like.dtype == torch.float32 else None
    if kernels is None:
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
    out = like.new_empty(shape)
    seed = torch.randint(2**63 - 1, (), generator=generator)
    kernels.fill_normal(
        ctypes.c_void_p(out.data_ptr()),
        ctypes.c_int64(out.numel()),
        ctypes.c_uint64(int(seed)),
        threads(8 * out.numel()),
    )
    return out
