"""Dropout whose masks come from a generator: fresh ones in training, one for each stochastic pass in forecasts."""

import torch
from torch import Generator, Tensor


def draw_masks(shape: tuple[int, ...], rate: float, generator: Generator | None) -> Tensor:
    """Zero with probability `rate`, else 1 / (1 - rate), so that the mean is one."""
    if rate == 0.0:
        return torch.ones(shape)
    return (torch.rand(shape, generator=generator) >= rate).float() / (1 - rate)
