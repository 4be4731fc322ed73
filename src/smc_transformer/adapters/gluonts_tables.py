"""Entries of GluonTS data sets as long tables of the forecaster; and which of them are windows of one series.

An entry has a start (a period), a target of shape (time,) or (column, time), and maybe an item_id and feat_dynamic_real
of shape (feature, time), which for a forecast goes on over the steps ahead.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

ID, TIME, FEATURES = "unique_id", "ds", "feat_dynamic_real"


@dataclass(frozen=True)
class Window:
    """An entry, in the shapes of the forecaster."""

    start: pd.Period
    target: Float[np.ndarray, "time column"]
    features: Float[np.ndarray, "longer feature"]  # of the time of the target, and maybe of steps ahead
    item_id: Any

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Window":
        """From an entry of a data set."""
        target = np.atleast_2d(np.asarray(entry["target"], dtype=float)).T
        given = entry.get(FEATURES)
        features = np.empty((len(target), 0)) if given is None else np.atleast_2d(np.asarray(given, dtype=float)).T
        if len(features) < len(target):
            raise ValueError(f"{FEATURES} must be known at the {len(target)} times of the target, got {len(features)}")
        return cls(entry["start"], target, features, entry.get("item_id"))

    def __len__(self) -> int:
        return len(self.target)

    def goes_on_from(self, other: "Window") -> bool:
        """Whether this is the same series as another window, with as many rows or more."""
        same = (self.start, self.item_id) == (other.start, other.item_id) and len(self) >= len(other)
        return (
            same
            and np.array_equal(self.target[: len(other)], other.target, equal_nan=True)
            and np.array_equal(self.features[: len(other)], other.features[: len(other)], equal_nan=True)
        )

    def rows(self, name: int, first: int) -> pd.DataFrame:
        """Its rows from one on, as those of a series of this name."""
        return self._table(name, first, len(self)).assign(
            **{column: self.target[first:, number] for number, column in enumerate(target_columns(self))}
        )

    def ahead(self, name: int) -> pd.DataFrame:
        """What is known of the steps after its rows."""
        return self._table(name, len(self), len(self.features))

    def _table(self, name: int, first: int, last: int) -> pd.DataFrame:
        times = pd.period_range(self.start + first, periods=last - first, freq=self.start.freq)
        known = {column: self.features[first:last, number] for number, column in enumerate(input_columns(self))}
        return pd.DataFrame({ID: name, TIME: times, **known})


def target_columns(window: Window) -> list[str]:
    """What the columns of the target are called inside."""
    return [f"y{number}" for number in range(window.target.shape[1])]


def input_columns(window: Window) -> list[str]:
    """What the features are called inside."""
    return [f"x{number}" for number in range(window.features.shape[1])]


def chains(windows: Iterable[Window]) -> list[list[tuple[int, Window]]]:
    """Windows, with their places, such that each chain is one series with more and more rows."""
    found: list[list[tuple[int, Window]]] = []
    for place, window in enumerate(windows):
        if found and window.goes_on_from(found[-1][-1][1]):
            found[-1].append((place, window))
        else:
            found.append([(place, window)])
    return found


def joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables one after another."""
    return pd.concat(tables, ignore_index=True)
