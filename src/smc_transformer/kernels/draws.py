"""Draws in proportion to masses."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER


def invert_masses(
    masses: Float[Tensor, "batch particle"], uniforms: Float[Tensor, "batch sample"], like: Tensor
) -> Int[Tensor, "batch sample"]:
    """The first particle whose cumulative share of the mass exceeds each uniform; never one of mass zero.

    Masses and uniforms are float64, as in `smc.resampling`, which has the same in torch; `like` has the numbers whose
    kernels are used.
    """
    masses, uniforms = masses.double().contiguous(), uniforms.double().contiguous()
    indices = torch.empty(uniforms.shape, dtype=torch.long)
    pointers = (POINTER(tensor.data_ptr()) for tensor in (masses, uniforms, indices))
    sizes = (*masses.shape, uniforms.shape[-1])
    check(loaded(like).invert_masses(*pointers, *map(COUNT, sizes), threads(8 * uniforms.numel())))
    return indices
