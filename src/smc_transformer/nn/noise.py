"""Standard normal noise."""

import torch
from torch import Generator, Tensor

from smc_transformer.kernels import library
from smc_transformer.kernels.noise import fill_normal


def standard_normal(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Standard normal numbers like `like`; the kernel's have the precision of float32, so it draws no others."""
    if like.dtype == torch.float32 and library(like) is not None:
        return fill_normal(like.new_empty(shape), generator)
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
