"""Sequences of unequal length in one tensor: right-aligned, and NaN in every column until a sequence begins.

The first row that is not NaN throughout is X_0 of its sequence. Rows before it have no part in anything: they are no
missing values, which particles would draw. Sequences that begin at the same row are worked on together, from that row
on; gradients of such groups add up, and statistics average by how many steps each has.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.network import Network
from smc_transformer.smc.weights import WeightCollapseError


class Group(NamedTuple):
    """Sequences of a batch that begin at the same row, from there on."""

    x: Float[Tensor, "group time_plus_1 n_inputs"]
    sequences: Int[Tensor, "group"]  # their places in the batch
    start: int  # the row of the batch that is their X_0

    @property
    def n_steps(self) -> int:
        """Of all its sequences together."""
        return len(self.x) * (self.x.shape[1] - 1)

    @contextmanager
    def places_of_batch(self) -> Iterator[None]:
        """An error that names a sequence and a step of the group is raised with those of the batch."""
        try:
            yield
        except WeightCollapseError as error:
            raise WeightCollapseError(int(self.sequences[error.sequence]), self.start + error.step) from None


def starts(x: Float[Tensor, "sequence time n_inputs"]) -> Int[Tensor, "sequence"]:
    """The row at which each sequence begins; the number of rows for one that never does."""
    begun = ~x.isnan().all(dim=-1)
    return torch.where(begun.any(dim=1), begun.int().argmax(dim=1), x.shape[1])


def groups_by_start(x: Float[Tensor, "batch time_plus_1 n_inputs"]) -> list[Group]:
    """The sequences of a batch, together where they begin at the same row; the longest come first."""
    if len(x) == 0:
        return []
    if not x[:, 0].isnan().all(dim=-1).any():  # all begin at once: no need to look at the other rows
        return [Group(x, torch.arange(len(x), device=x.device), 0)]
    begins = starts(x)
    members = [((begins == start).nonzero().flatten(), start) for start in begins.unique().tolist()]
    return [Group(x[sequences, start:], sequences, start) for sequences, start in members]


def split_horizon(
    x: Float[Tensor, "group time_plus_1 n_inputs"], horizon: int
) -> tuple[Float[Tensor, "group past n_inputs"], Float[Tensor, "group future n_inputs"]]:
    """What is known, and the horizon at the end: shorter where nothing but X_0 would be left to know."""
    n_ahead = min(horizon, x.shape[1] - 1)
    return x[:, :-n_ahead], x[:, -n_ahead:]


def check_ragged(network: Network, x: Tensor, *, min_time: int, name: str = "x") -> Tensor:
    """Sequences of any lengths that this network can read, or an error that says what is wrong with them."""
    if not isinstance(x, Tensor) or x.ndim != 3 or 0 in x.shape or not (begins := starts(x)).any():
        return network.check(x, min_time=min_time, name=name)
    n_rows = x.shape[1] - begins
    if (n_rows < min_time).any():
        sequence = int((n_rows < min_time).nonzero()[0])
        raise ValueError(
            f"sequence {sequence} of {name} has {int(n_rows[sequence])} time steps that are not NaN throughout "
            f"at its end, but must have at least {min_time}"
        )
    first = x[torch.arange(len(x), device=x.device), begins]
    if not first.isfinite().all():
        sequence, feature = (~first.isfinite()).nonzero()[0].tolist()
        place = [sequence, int(begins[sequence]), feature]
        raise ValueError(
            f"{name} holds {first[sequence, feature].item()} at {place} (batch, time, feature): all values must be "
            "known at the first time step of a sequence that is not NaN throughout"
        )
    # Values that a sequence has, in place of those it has not: what is asked of the others can be asked of all.
    waiting = torch.arange(x.shape[1], device=x.device) < begins.unsqueeze(1)
    network.check(torch.where(waiting.unsqueeze(-1), first.unsqueeze(1), x), min_time=min_time, name=name)
    return x
