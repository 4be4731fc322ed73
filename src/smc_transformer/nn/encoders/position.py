"""Encodings of the position in a sequence, added to embeddings."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from smc_transformer.nn.encoders.base import Position


class SinusoidalPosition(nn.Module):
    """sin and cos of the position at geometrically spaced frequencies (Vaswani et al., 2017)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.d_model = d_model

    def forward(self, start: Position, length: int) -> Float[Tensor, "*row time d_model"]:
        """The encodings of positions start, ..., start + length - 1, in float64."""
        positions = torch.as_tensor(start).unsqueeze(-1) + torch.arange(length)
        evens = torch.arange(0, self.d_model, 2, dtype=torch.float64)
        angles = positions.double().unsqueeze(-1) * torch.exp(-math.log(10_000.0) / self.d_model * evens)
        pairs = torch.stack((angles.sin(), angles.cos()), dim=-1)
        return pairs.flatten(-2)[..., : self.d_model]


class LearnedPosition(nn.Module):
    """A table with one learned vector for each position."""

    def __init__(self, d_model: int, max_positions: int):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(max_positions, d_model))

    def forward(self, start: Position, length: int) -> Float[Tensor, "*row time d_model"]:
        """The encodings of positions start, ..., start + length - 1."""
        positions = torch.as_tensor(start).unsqueeze(-1) + torch.arange(length)
        if int(positions.max()) >= len(self.table):
            raise ValueError(
                f"the learned position encoding covers {len(self.table)} positions (max_positions), "
                f"got a sequence that reaches position {int(positions.max())}; "
                'raise max_positions or use position_encoding="sinusoidal"'
            )
        return self.table[positions]


def make_position(name: str | None, d_model: int, max_positions: int) -> SinusoidalPosition | LearnedPosition | None:
    """The encoding of that name."""
    if name == "sinusoidal":
        return SinusoidalPosition(d_model)
    return LearnedPosition(d_model, max_positions) if name == "learned" else None
