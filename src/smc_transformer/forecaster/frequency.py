"""The regular grid that the times of a series lie on: a pandas frequency, or a step between whole numbers."""

from typing import Any, TypeAlias

import pandas as pd

from smc_transformer.support.checks import check_count

Frequency: TypeAlias = str | int
"""A pandas frequency such as "h", "D", "MS" or "15min" for timestamps; a whole number for whole-number times."""


def check_frequency(freq: Any) -> Frequency:
    """A pandas frequency, or a whole number of at least 1."""
    if not isinstance(freq, str):
        return check_count(freq, "freq")
    try:
        step = pd.tseries.frequencies.to_offset(freq)
    except ValueError as error:
        raise ValueError(f"freq must be a pandas frequency or a whole number, got {freq!r}: {error}") from None
    if step.n < 1:
        raise ValueError(f"freq must go forward in time, got {freq!r}")
    return freq


def times_between(first: Any, last: Any, freq: Frequency) -> pd.Index:
    """All times of the grid from the first to the last; without the first, if that is not on the grid."""
    if isinstance(freq, str):
        return pd.date_range(first, last, freq=freq)
    return pd.Index(range(int(first), int(last) + 1, freq), dtype="int64")


def times_after(last: Any, n: int, freq: Frequency) -> pd.Index:
    """The next n times of the grid."""
    if isinstance(freq, str):
        return pd.date_range(last, periods=n + 1, freq=freq)[1:]
    return pd.Index(range(int(last) + freq, int(last) + freq * n + 1, freq), dtype="int64")
