"""Standard normal noise."""

import torch
from torch import Generator, Tensor

from smc_transformer.kernels.choice import in_c
from smc_transformer.kernels.noise import fill_normal
from smc_transformer.nn.conditions import explain_draws
from smc_transformer.nn.streams import Streams


def of_seeds(like: Tensor) -> bool:
    """Whether a generator only draws a seed for normal numbers like `like`, of which they can be made later."""
    return in_c(explain_draws(like))


def standard_normal(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Standard normal numbers like `like`; of streams, the first axis is that of their sequences."""
    if isinstance(generator, Streams):
        return generator.normals(shape, like)
    if of_seeds(like):
        return fill_normal(like.new_empty(shape), generator)
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
