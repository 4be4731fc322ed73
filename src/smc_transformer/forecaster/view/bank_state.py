"""What a bank remembers of columns of series: plain arrays, of which rows are taken, replaced and joined."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int


@dataclass
class BankState:
    """What is remembered of columns of series: plain arrays, a row for each column of each series.

    Attributes:
        n_rows: rows seen, missing ones included, since the first observed one.
        n_observed: of these, how many were observed.
        silent: missing rows since the last observed one.
        last: the last observed value.
        size: the typical size |y| of recent values.
        largest: the largest |y| of all; infinite, as the next, where a folder of an earlier release does not tell.
        jump: the largest change from one observed value to the next.
        profiles: the entries of all profiles, one after the other.
        latest: the last observed value of each place in each season.
        visits: how many values each place in each season has had.
        reference: the level that each profile is learned against.
        level: of each candidate.
        trend: of each candidate.
        origin_level: of each candidate where its running forecasts began.
        origin_trend: likewise.
        errors: sums of absolute errors of running forecasts, discounted.
        n_errors: how many errors that are, discounted alike.
        compiled: what C has found of it (`Bank.compiled`): pointers of this process, so no copy has them.
    """

    n_rows: Int[np.ndarray, "row"]
    n_observed: Int[np.ndarray, "row"]
    silent: Int[np.ndarray, "row"]
    last: Float[np.ndarray, "row"]
    size: Float[np.ndarray, "row"]
    largest: Float[np.ndarray, "row"]
    jump: Float[np.ndarray, "row"]
    profiles: Float[np.ndarray, "row entry"]
    latest: Float[np.ndarray, "row place"]
    visits: Int[np.ndarray, "row place"]
    reference: Float[np.ndarray, "row profile"]
    level: Float[np.ndarray, "row candidate"]
    trend: Float[np.ndarray, "row candidate"]
    origin_level: Float[np.ndarray, "row origin candidate"]
    origin_trend: Float[np.ndarray, "row origin candidate"]
    errors: Float[np.ndarray, "row candidate"]
    n_errors: Float[np.ndarray, "row"]
    compiled: Any = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.n_rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "compiled": None}

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by names."""
        own = vars(self)
        return {name: own[name] for name in _names()}

    @classmethod
    def names(cls) -> list[str]:
        """The names of the arrays."""
        return list(_names())

    def take(self, rows: Any) -> "BankState":
        """Some rows, in memory of their own unless chosen by a slice."""
        return BankState(**{name: array[rows] for name, array in self.arrays().items()})

    def put(self, rows: Any, other: "BankState") -> None:
        """Replace some rows, in place."""
        theirs = other.arrays()
        for name, array in self.arrays().items():
            array[rows] = theirs[name]

    @staticmethod
    def cat(states: Sequence["BankState"]) -> "BankState":
        """The rows of several states as one, in memory of its own."""
        parts = [state.arrays() for state in states]
        return BankState(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


@lru_cache(1)
def _names() -> tuple[str, ...]:
    return tuple(one.name for one in fields(BankState) if one.init)
