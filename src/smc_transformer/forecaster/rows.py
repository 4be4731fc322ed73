"""Rows as JSON: one observation of a series, or an error that says what is wrong with it."""

import json
import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.frequency import TimeOutOfReachError, steps_between, times_after, times_between
from smc_transformer.forecaster.names import is_name, name_array, new_name
from smc_transformer.forecaster.next_time import time_after
from smc_transformer.forecaster.panel import FEWEST_ROWS
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, Series, TableError, in_zone_of
from smc_transformer.forecaster.times import CLOCKS
from smc_transformer.support.checks import cut, shown

FUTURE = "future"
"""Key of the inputs that are known ahead, at the times ahead: {"future": {"price": [1.0, 1.2]}}."""
LONGEST_TIME = 100
"""Characters of a time."""
MOST_DIGITS = sys.float_info.max_10_exp
"""Of a whole number: those with as many can be values."""
LONGEST_NUMBER = 30
"""Digits of a name that may be a number; Python refuses to read thousands of them."""


class RowError(ValueError):
    """A row that cannot be used, and why; `column` is the one that is to blame, if it is one."""

    kind = "invalid"

    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason)
        self.column = column


class UnknownSeriesError(RowError):
    """A row of a series that is not followed, and cannot begin here."""

    kind = "unknown series"


class TooManySeriesError(RowError):
    """A row of a series that is not followed, where as many have begun as may."""

    kind = "too many series"


class PastRowError(RowError):
    """A row, fine but for its time, which is not after the last one of its series."""

    kind = "past"

    def __init__(self, reason: str, column: str, row: "Row") -> None:
        super().__init__(reason, column)
        self.row = row


class TakenError(RowError):
    """A row with another value than the one that was accepted at its time."""

    kind = "conflict"


@dataclass(frozen=True)
class Row:
    """One observation."""

    name: Name
    time: Any
    cells: dict[str, Any]  # names and values of all columns, as JSON holds them
    future: dict[str, list[float]] | None  # inputs that are known ahead, by column; None if they were not given


def rows_table(rows: Sequence[Row], settings: Settings) -> pd.DataFrame:
    """Rows as `Forecaster.update` takes them."""
    numbers = {
        name: np.array([row.cells[name] for row in rows], dtype=float)
        for name in (*settings.modelled, *settings.future_inputs)
    }
    # In one go, as each column that is added takes as long as a filter step.
    names, times = name_array([row.name for row in rows]), pd.Index([row.time for row in rows])
    return pd.DataFrame({**numbers, settings.id_column: names, settings.time_column: times}, copy=False)


def read_json(data: bytes | str) -> Any:
    """A value of JSON, in which no object has two values of one name: Python would take the last of them.

    Raises:
        ValueError: it is none, or one that Python does not read.
    """
    try:
        return json.loads(data, object_pairs_hook=_with_names, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("lists and objects lie too deep in each other") from None


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number has {len(digits)} digits, and at most {MOST_DIGITS} are read")
    return int(digits)


def _with_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has {shown(next(name for name in found if names.count(name) > 1))} twice")
    return found


def parse_object(line: bytes) -> dict[str, Any]:
    """The object in a line of JSON."""
    try:
        cells = read_json(line)
    except ValueError as error:  # also of bytes that are no text
        raise RowError(f"not a line of JSON: {' '.join(str(error).split())}") from None
    return check_object(cells)


def check_object(cells: Any) -> dict[str, Any]:
    """That a value of JSON is an object."""
    if not isinstance(cells, dict):
        raise RowError(f"expected an object such as {{...}}, got {type(cells).__name__}")
    return cells


def read_row(cells: dict[str, Any], name: Name, fitted: Fitted, horizon: int = 0, most_steps: int | None = None) -> Row:
    """The observation in an object such as {"unique_id": "a", "ds": "2024-01-31 13:00", "y": 1.5}.

    null is missing, and further keys are ignored. Inputs ahead, if there are any, must be known for the steps of the
    horizon. A series may jump at most so many steps ahead of its last row. `name` is what `row_series` says; a series
    that is not followed yet begins with this row.
    """
    settings, following = fitted.settings, fitted.following
    last = following.last_time(name) if name in following.series else None
    time = _time(cells, fitted, name, last)
    kept = {settings.id_column: name, settings.time_column: cells[settings.time_column]}
    for column in (*settings.modelled, *settings.future_inputs):
        if column not in cells:
            raise RowError(f"there is no {column!r}; a missing value is null", column)
        kept[column] = _number(cells[column], column)
    row = Row(name, time, kept, _future(cells, settings.future_inputs, horizon))
    if last is None:
        _check_beginning(row, fitted)
        return row
    if time <= last:
        shown_time = _plain(cells[settings.time_column])
        reason = f"series {shown(name)}: time {shown_time} is not after the last one, {last}"
        raise PastRowError(reason, settings.time_column, row)
    if most_steps is not None:
        _check_reach(row, last, settings, most_steps)
    return row


def future_series(row: Row, settings: Settings, horizon: int) -> Series:
    """The times ahead, with what is known of them."""
    times = times_after(row.time, horizon, settings.freq)
    known = [(row.future or {})[column][:horizon] for column in settings.future_inputs]
    return Series.of_inputs(row.name, times, np.array(known, float).reshape(-1, horizon).T)


def row_series(cells: dict[str, Any], fitted: Fitted, away: Collection[Name] = (), *, may_begin: bool = False) -> Name:
    """The series that an object of JSON is an observation of, which is followed or `away` (`retiring.py`).

    Or one that `may_begin` with it.
    """
    column, known = fitted.settings.id_column, fitted.following.series
    if isinstance(text := cells.get(column), str) and text in known:  # as mostly
        return text
    if column not in cells:
        # The only series; where others have begun since, still that of the fit.
        for alone in (known if not away else away if not known else (), fitted.trained_until):
            if len(alone) == 1 and ((only := next(iter(alone))) in known or only in away):
                return only
        raise RowError(f"there is no {column!r}: whose observation is it?", column)
    name = tuple(cells[column]) if isinstance(cells[column], list) else cells[column]  # JSON has no tuples
    if not is_name(name):
        raise RowError(f"{column!r} must be text or a whole number, got {_json(cells[column])}", column)
    # In a text table all names are text, so 7 and "7" mean the same series.
    text = str(name) if isinstance(name, str) or (isinstance(name, int) and abs(name) < 10**LONGEST_NUMBER) else ""
    for candidate in (name, text, int(text) if text.isdecimal() and len(text) <= LONGEST_NUMBER else name):
        if candidate in known or candidate in away:
            return candidate
    if not may_begin:
        raise UnknownSeriesError(f"unknown series {shown(name)}", column)
    try:
        return new_name(name, next(chain(known, away, fitted.trained_until), None))
    except ValueError as error:
        reason = f"unknown series {shown(name)}, and none can be called that: {error}"
        raise UnknownSeriesError(reason, column) from None


def _time(cells: dict[str, Any], fitted: Fitted, name: Name, last: Any) -> Any:
    settings = fitted.settings
    column = settings.time_column
    if column not in cells:
        raise RowError(f"series {shown(name)}: there is no time {column!r}", column)
    time = cells[column]
    if isinstance(settings.freq, str):
        return _timestamp(time, column, fitted.some_time if last is None else last)
    if isinstance(time, bool) or not isinstance(time, int) or abs(time) >= 2**62:
        raise RowError(f"{column!r} must be a whole number, got {_json(time)}", column)
    return time


def _check_beginning(row: Row, fitted: Fitted) -> None:
    """That a series can begin with a row: all that is modelled is observed, and there are times after it."""
    settings, new = fitted.settings, f"series {shown(row.name)} is new"
    if fitted.panel.view is None and row.name not in fitted.panel.scalers:
        raise UnknownSeriesError(
            f"{new}: with scaling={settings.scaling!r} it needs {FEWEST_ROWS} rows at once to begin, which "
            f"Forecaster.update takes (with scaling='local', one row is enough)",
            settings.id_column,
        )
    for column in settings.modelled:
        if row.cells[column] is None:
            raise RowError(f"{new}, and begins with a row in which all values are known: {column!r} is missing", column)
    try:
        time_after(row.time, settings.freq)
    except TimeOutOfReachError as error:
        raise RowError(f"{new}: {error}", settings.time_column) from None


def _check_reach(row: Row, last: Any, settings: Settings, most_steps: int) -> None:
    """That a row is at most so many steps after the last one of its series."""
    freq, column = settings.freq, settings.time_column
    # By the length of one step first: a far time would make a long grid.
    try:
        if row.time == time_after(last, freq):
            return
        is_far = steps_between(pd.Index([last, row.time]), freq)[0] > 2 * most_steps
        is_far = is_far or len(times_between(last, row.time, freq)) - 1 > most_steps
    except TimeOutOfReachError as error:
        raise RowError(f"series {shown(row.name)}: {error}", column) from None
    if is_far:
        shown_time = _plain(row.cells[column])
        raise RowError(
            f"series {shown(row.name)}: time {shown_time} is more than {most_steps} steps after the last, {last}",
            column,
        )


def _timestamp(value: Any, column: str, known: pd.Timestamp | None) -> pd.Timestamp:
    """A time in the zone and unit of those that are known, if any are."""
    time = _parsed(value) if isinstance(value, str) and len(value) <= LONGEST_TIME else pd.NaT
    if time is pd.NaT:
        raise RowError(f"{column!r} must be a time as text (ISO 8601), got {_json(value)}", column)
    try:
        found = time
        if known is None:
            return found.as_unit("ns")
        if time.tz is not None or known.tz is not None:
            found = in_zone_of(pd.DatetimeIndex([time]), known, f"{column!r} is {_json(value)}")[0]
        if found.as_unit(known.unit) != found:
            raise RowError(f"{column!r} is finer than the times of the fit, got {_json(value)}", column)
        return found.as_unit(known.unit)
    except RowError:
        raise
    except TableError as error:
        raise RowError(str(error), column) from None
    except (ValueError, OverflowError):  # the year 9999, counted in nanoseconds, or in a zone where it is 10000 already
        raise RowError(f"{column!r} is out of reach of the times of the fit, got {_json(value)}", column) from None


# Series mostly have rows at the same times: to read such a time costs more than all else about a row.
@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    return pd.NaT if text.strip().lower() in CLOCKS else pd.to_datetime(text, format="ISO8601", errors="coerce")


def _number(value: Any, column: str) -> float | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RowError(f"{column!r} must be a number or null, got {_json(value)}", column)
    if abs(value) > sys.float_info.max:
        raise RowError(f"{column!r} must be a finite number or null, got {shown(value)}", column)
    return float(value)


def _future(cells: dict[str, Any], columns: tuple[str, ...], horizon: int) -> dict[str, list[float]] | None:
    if not columns:
        return {}
    future = cells.get(FUTURE)
    if future is None:
        return None
    if not isinstance(future, dict):
        raise RowError(f"{FUTURE!r} must be an object with a list for each of {list(columns)}", FUTURE)
    found = {}
    for column in columns:
        values = future.get(column)
        if not isinstance(values, list) or len(values) < horizon:
            raise RowError(f"{FUTURE!r} must hold {horizon} values of {column!r}, got {_json(values)}", FUTURE)
        found[column] = [number for value in values if (number := _number(value, column)) is not None]
        if len(found[column]) < len(values):
            raise RowError(f"{FUTURE!r}: inputs that are known ahead must be known, {column!r} has a null", FUTURE)
    return found


def _json(value: Any) -> str:
    """A value as the line has it, but for the middle of a long one."""
    return cut(json.dumps(value))


def _plain(value: Any) -> str:
    return cut(str(value))
