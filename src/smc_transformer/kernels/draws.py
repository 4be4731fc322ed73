"""Draws in proportion to masses."""

import torch
from torch import Tensor

from smc_transformer.kernels.library import COUNT, POINTER, check, library, threads


def invert_cumulative(masses: Tensor, uniforms: Tensor) -> Tensor | None:
    """The first particle whose cumulative share of the mass exceeds each uniform; None where torch has to do it.

    Args:
        masses: (batch, particle), float64.
        uniforms: (batch, sample), float64.
    """
    kernels = library(masses)
    if kernels is None:
        return None
    masses, uniforms = masses.contiguous(), uniforms.contiguous()
    indices = torch.empty(uniforms.shape, dtype=torch.long)
    pointers = (POINTER(tensor.data_ptr()) for tensor in (masses, uniforms, indices))
    sizes = (*masses.shape, uniforms.shape[-1])
    check(kernels.invert_cumulative(*pointers, *map(COUNT, sizes), threads(8 * uniforms.numel())))
    return indices
