"""Encodings of the position in a sequence, added to embeddings."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class SinusoidalPosition(nn.Module):
    """sin and cos of the position at geometrically spaced frequencies (Vaswani et al., 2017)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model

    def forward(self, start: int, length: int) -> Float[Tensor, "time d_model"]:
        """The encodings of positions start, ..., start + length - 1, in float64."""
        positions = torch.arange(start, start + length, dtype=torch.float64).unsqueeze(-1)
        evens = torch.arange(0, self.d_model, 2, dtype=torch.float64)
        angles = positions * torch.exp(-math.log(10_000.0) / self.d_model * evens)
        pairs = torch.stack((angles.sin(), angles.cos()), dim=-1)
        return pairs.flatten(-2)[:, : self.d_model]


class LearnedPosition(nn.Module):
    """A table with one learned vector for each position."""

    def __init__(self, d_model: int, max_positions: int):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(max_positions, d_model))

    def forward(self, start: int, length: int) -> Float[Tensor, "time d_model"]:
        """The encodings of positions start, ..., start + length - 1."""
        if start + length > len(self.table):
            raise ValueError(
                f"the learned position encoding covers {len(self.table)} positions (max_positions), "
                f"got a sequence that reaches position {start + length - 1}; "
                'raise max_positions or use position_encoding="sinusoidal"'
            )
        return self.table[start : start + length]


def make_position(name: str | None, d_model: int, max_positions: int) -> SinusoidalPosition | LearnedPosition | None:
    """The encoding of that name."""
    if name == "sinusoidal":
        return SinusoidalPosition(d_model)
    return LearnedPosition(d_model, max_positions) if name == "learned" else None
