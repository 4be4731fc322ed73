"""The next time of a grid: what it is after the last one, and whether a time is the next one.

Series mostly have rows at the same times, so answers are kept. Equal timestamps may differ in zone or unit, and then in
what comes next, so both belong to what answers are kept for.
"""

from functools import lru_cache
from typing import Any

import pandas as pd

from smc_transformer.forecaster.frequency import (
    Frequency,
    TimeOutOfReachError,
    fixed_step,
    steps_between,
    times_after,
    times_between,
)


def time_after(last: Any, freq: Frequency) -> Any:
    """The time after the last one; a `TimeOutOfReachError` where there is none that can be written down."""
    return _after(last, freq, getattr(last, "tz", None), getattr(last, "unit", None))


@lru_cache(maxsize=4096)
def _after(last: Any, freq: Frequency, *_: Any) -> Any:
    return times_after(last, 1, freq)[0]


def as_next_time(last: Any, time: Any, freq: Frequency) -> Any:
    """A time as the grid of a series has it, if it is the one after the last; None: it is another."""
    if not isinstance(freq, str):
        return time if time == last + freq else None
    if last.unit == time.unit and last.tz is None and (step := fixed_step(freq)) is not None:
        try:
            return time if time - last == step else None
        except ValueError:  # of pandas: more than the 292 years that a duration in nanoseconds holds
            return None
    return _next_timestamp(last, time, freq, str(last.tz), last.unit, time.unit) if time > last else None


@lru_cache(1024)
def _next_timestamp(last: Any, time: Any, freq: str, *_: Any) -> Any:
    """The same of any timestamps."""
    try:
        if (steps_between(pd.DatetimeIndex([last, time]), freq) > 2).any():  # about: the grid could be long
            return None
        grid = times_between(last, time, freq)
    except TimeOutOfReachError:
        return None
    return grid[1] if len(grid) == 2 and grid[0] == last and grid[1] == time else None
