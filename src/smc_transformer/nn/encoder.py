"""From observations to embeddings: e_s = W X_s + b, plus, if asked for, an encoding of the position s."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LinearEncoder(nn.Module):
    """A linear map of each observation, with an optional position encoding.

    Args:
        n_inputs: features of an observation.
        d_model: features of an embedding.
        position_encoding: None (the paper), "sinusoidal" or "learned".
        max_positions: length of the table of learned positions.
    """

    def __init__(self, n_inputs: int, d_model: int, position_encoding: str | None = None, max_positions: int = 512):
        super().__init__()
        self.projection = nn.Linear(n_inputs, d_model)
        self.position: SinusoidalPosition | LearnedPosition | None = None
        if position_encoding == "sinusoidal":
            self.position = SinusoidalPosition(d_model)
        elif position_encoding == "learned":
            self.position = LearnedPosition(d_model, max_positions)

    def forward(self, x: Float[Tensor, "*batch time n_inputs"], start: int = 0) -> Float[Tensor, "*batch time d_model"]:
        """Embed observations whose first one is at position `start` of its sequence."""
        embedding: Tensor = self.projection(x)
        if self.position is not None:
            embedding = embedding + self.position(start, x.shape[-2]).to(embedding)
        return embedding


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
