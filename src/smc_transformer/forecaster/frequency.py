"""The regular grid that the times of a series lie on: a pandas frequency, or a step between whole numbers."""

import contextlib
import datetime
import functools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, UInt

from smc_transformer.forecaster.periods import steps_of_starts
from smc_transformer.inference.settings import LONGEST_FORECAST
from smc_transformer.support.checks import check_count, shown

Frequency: TypeAlias = str | int
"""A pandas frequency such as "h", "D", "MS" or "15min" for timestamps, "period[M]" for periods; a whole number for
whole-number times."""
CALENDAR = ("YS", "YE", "QS", "QE", "MS", "ME", "W-SUN", "W-MON", "B")
"""Steps of unequal length, or bound to days, that are tried; the longest that all times lie on is taken."""
_LONGEST_DAYS = {"Y": 366, "Q": 92, "M": 31, "W": 7, "B": 3}
"""Between two times of such a grid, by its first letter."""

FARTHEST = 2**62
"""Of whole-number times, and of steps between times, in their unit."""
LONGEST = LONGEST_FORECAST
"""Steps of a forecast, or of the history in a training window."""


class IrregularTimesError(ValueError):
    """Times that lie on no regular grid."""


class TimeOutOfReachError(ValueError):
    """A grid with a time that cannot be written down: beyond them all, or one that its zone leaves out or has twice."""


def check_frequency(freq: Any) -> Frequency:
    """A pandas frequency, or a whole number of at least 1."""
    if not isinstance(freq, str):
        return check_count(freq, "freq", at_most=2**62)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of older versions of pandas, about what they will refuse
            step = offset_of(freq)
    except (ValueError, OverflowError, TypeError) as error:
        meant = re.search(r"(?:Did you mean |Please use ')(\w+)", str(error))
        hint = f": do you mean {meant[1]!r}?" if meant else ""
        raise ValueError(f"freq must be a pandas frequency or a whole number, got {shown(freq)}{hint}") from None
    if step.n < 1:
        raise ValueError(f"freq must go forward in time, got {shown(freq)}")
    return freq


def offset_of(freq: str) -> Any:
    """The step of a frequency, as pandas adds it to timestamps."""
    return pd.tseries.frequencies.to_offset(steps_of_starts(freq))


def times_between(first: Any, last: Any, freq: Frequency) -> pd.Index:
    """All times of the grid from the first to the last; without the first, if that is not on the grid."""
    if isinstance(freq, str):
        with _in_reach(first):
            return pd.date_range(first, last, freq=steps_of_starts(freq))
    return pd.Index(range(int(first), int(last) + 1, freq), dtype="int64")


def times_after(last: Any, n: int, freq: Frequency) -> pd.Index:
    """The next n times of the grid; for series that end together it is the same index, made once."""
    if isinstance(freq, str):
        with _in_reach(last):
            return _dates(pd.Timestamp(last), n + 1, freq)[1]
    if int(last) + freq * n >= FARTHEST:
        raise TimeOutOfReachError(f"the grid after {last} goes beyond all whole-number times")
    return pd.Index(range(int(last) + freq, int(last) + freq * n + 1, freq), dtype="int64")


def times_until(last: Any, n: int, freq: Frequency) -> pd.Index:
    """The last n times of the grid up to one of them."""
    if isinstance(freq, str):
        with _in_reach(last):
            return _dates(pd.Timestamp(last), -n, freq)[0]
    return pd.Index(range(int(last) - freq * (n - 1), int(last) + 1, freq), dtype="int64")


def _dates(time: pd.Timestamp, n: int, freq: str) -> tuple[pd.Index, pd.Index]:
    """Times from one on, or if n is negative up to it; also without the first."""
    return _made_dates(time, str(time.tz), time.unit, n, freq)  # equal timestamps may differ in zone and unit


@functools.lru_cache(maxsize=16)
def _made_dates(time: pd.Timestamp, _zone: str, _unit: str, n: int, freq: str) -> tuple[pd.Index, pd.Index]:
    ends = {"start": time} if n > 0 else {"end": time}
    found = pd.date_range(periods=abs(n), freq=steps_of_starts(freq), **ends)
    # Beyond these years pandas counts on, but cannot read what it has written.
    if found[0].year < datetime.MINYEAR or found[-1].year > datetime.MAXYEAR:
        raise OverflowError
    return found, found[1:]


def with_absent_times(
    times: pd.Index, values: Float[np.ndarray, "row"], freq: Frequency
) -> tuple[pd.Index, Float[np.ndarray, "time"]]:
    """Values at all times of the grid from the first to the last, NaN where there are none; unsorted ones stay."""
    if len(times) < 2 or not times.is_monotonic_increasing or not times.is_unique:
        return times, values
    grid = times_between(times[0], times[-1], freq)
    places = grid.get_indexer(times)
    if (places < 0).any():
        return times, values
    full = np.full(len(grid), np.nan)
    full[places] = values
    return grid, full


@contextlib.contextmanager
def _in_reach(start: Any) -> Iterator[None]:
    try:
        yield
    # Of pandas: the year 2262 in nanoseconds, or one without a name; the year 10000 in a zone.
    except (ValueError, OverflowError, NotImplementedError) as error:
        reason = "goes beyond the times that can be written down"
        said = f"{type(error).__name__}: {error}"
        if "nonexistent" in said.lower() or "infer dst" in said:  # of newer versions of pandas all are ValueErrors
            reason = f"meets the change of the clocks in {start.tz}, where a time is left out or comes twice: use UTC"
        raise TimeOutOfReachError(f"the grid after {start} {reason}") from None


def steps_between(times: pd.Index, freq: Frequency) -> Float[np.ndarray, "step"]:
    """About how many steps of the grid lie between each time and the next, without making the grid."""
    if not isinstance(freq, str):
        return np.diff(times.to_numpy("float64")) / freq
    seconds = times.asi8.astype("float64") / _UNITS[times.unit]  # in nothing smaller than float64 it cannot overflow
    return np.diff(seconds) / _usual_step(times[0], freq)


def _usual_step(time: pd.Timestamp, freq: str) -> float:
    """The seconds of a step: the average of some, which may be of unequal length, where the calendar has that many."""
    if (length := fixed_step(freq)) is not None:
        return length.total_seconds()
    try:
        return float((times_after(time, 12, freq)[-1] - time).total_seconds()) / 12
    except TimeOutOfReachError:
        return float((time - times_until(time, 13, freq)[0]).total_seconds()) / 12


@functools.lru_cache(64)
def fixed_step(freq: str) -> pd.Timedelta | None:
    """How long a step is, where all are of the same length; None for months, weeks that end on a Sunday and so on."""
    offset = offset_of(freq)
    try:
        if type(offset) is pd.offsets.Day:
            return pd.Timedelta(days=offset.n)
        return pd.Timedelta(offset) if isinstance(offset, pd.offsets.Tick) else None
    except (ValueError, OverflowError):  # longer than 292 years
        return None


_UNITS = {"s": 1e0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""How many of them are a second."""


def infer_frequency(series: Sequence[pd.Index]) -> Frequency:
    """The step of a grid that the sorted times of every series lie on, most of them one step after another."""
    several = [times for times in series if len(times) > 1]
    if not several:
        raise IrregularTimesError("no series has two rows to take a frequency from")
    if not isinstance(several[0], pd.DatetimeIndex):
        return _common_step(np.concatenate([_steps(times.to_numpy()) for times in several]), str)
    found = {_frequency(times) for times in several if len(times) > 2}
    if len(found) == 1 and None not in found:
        return str(found.pop())  # every series says the same
    for step in CALENDAR:
        if _lie_on(several, step):
            return step
    unit = several[0].unit  # one column has one unit
    steps = np.concatenate([_steps(times.as_unit(unit).asi8) for times in several])
    smallest = _common_step(steps, lambda step: _duration(step, unit))
    days, rest = divmod(smallest, 86_400 * int(_UNITS[unit]))
    if several[0].tz is None and rest == 0:  # pandas would say hours; in a zone, days are no 24 of them
        return "D" if days == 1 else f"{days}D"
    return str(pd.tseries.frequencies.to_offset(pd.Timedelta(np.timedelta64(smallest, unit))).freqstr)


def _steps(times: Int[np.ndarray, "time"]) -> UInt[np.ndarray, "step"]:
    """Without a sign, as there is no room for the longest beside one."""
    return np.diff(times.view(np.uint64))


def _duration(step: int, unit: Any) -> str:
    if step <= FARTHEST:  # pandas holds no longer one
        return str(pd.Timedelta(np.timedelta64(step, unit)))
    return str(datetime.timedelta(seconds=step / _UNITS[unit]))


def _common_step(steps: UInt[np.ndarray, "step"], text: Callable[[int], str]) -> int:
    """The smallest step, if the others are gaps: multiples of it, and fewer."""
    smallest = int(steps.min())
    if smallest > FARTHEST:
        raise IrregularTimesError(f"no two times are less than {text(smallest)} apart")
    if 2 * (steps == smallest).sum() < len(steps) or (steps % smallest).any():
        raise IrregularTimesError(
            f"the times lie on no regular grid (steps between {text(smallest)} and {text(int(steps.max()))}): "
            f"give their frequency as freq (--freq), or move them onto a grid"
        )
    return smallest


def _frequency(times: pd.DatetimeIndex) -> str | None:
    """What pandas makes of times without gaps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that newer versions of pandas will answer with an offset, as read here
        found = pd.infer_freq(times)
    return None if found is None else str(getattr(found, "freqstr", found))


def _lie_on(series: Sequence[pd.DatetimeIndex], step: str) -> bool:
    # A grid on which most places are empty is not that of the series: it is not made, as it may be one of 8000 years.
    n_times, longest = sum(map(len, series)), 86400 * _LONGEST_DAYS[step[0]]
    lengths = [(int(times.asi8[-1]) - int(times.asi8[0])) / _UNITS[times.unit] for times in series]
    if sum(length // longest for length in lengths) >= 2 * n_times:
        return False
    try:
        grids = [times_between(times[0], times[-1], step) for times in series]
    except TimeOutOfReachError:
        return False
    few_gaps = 2 * n_times > sum(map(len, grids))
    return few_gaps and all(times.isin(grid).all() for times, grid in zip(series, grids, strict=True))
