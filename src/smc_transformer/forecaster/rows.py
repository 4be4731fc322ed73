"""Rows as JSON: one observation of a known series, or an error that says what is wrong with it."""

import json
import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.frequency import TimeOutOfReachError, times_after, times_between
from smc_transformer.forecaster.names import is_name, name_array
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, Series, TableError, in_zone_of
from smc_transformer.forecaster.times import CLOCKS
from smc_transformer.support.checks import cut, shown

FUTURE = "future"
"""Key of the inputs that are known ahead, at the times ahead: {"future": {"price": [1.0, 1.2]}}."""
LONGEST_NUMBER = 30
"""Digits of a name that may be a number; Python refuses to read thousands of them."""


class RowError(ValueError):
    """A row that cannot be used, and why."""


class PastRowError(RowError):
    """A row that is not after the last one of its series."""


@dataclass(frozen=True)
class Row:
    """One observation."""

    name: Name
    time: Any
    cells: dict[str, Any]  # names and values of all columns, as JSON holds them
    future: dict[str, list[float]] | None  # inputs that are known ahead, by column; None if they were not given

    def table(self, settings: Settings) -> pd.DataFrame:
        """As `Forecaster.update` takes it."""
        columns = {name: [self.cells[name]] for name in (*settings.modelled, *settings.future_inputs)}
        frame = pd.DataFrame(columns, dtype=float)
        frame[settings.id_column], frame[settings.time_column] = name_array([self.name]), pd.Index([self.time])
        return frame


def parse_row(line: bytes, fitted: Fitted, horizon: int, most_steps: int) -> Row:
    """The observation in a line of JSON, such as {"unique_id": "a", "ds": "2024-01-31 13:00", "y": 1.5}.

    null is missing, and further keys are ignored. Inputs ahead, if the line has any, must be known for the steps of the
    horizon. A series may jump at most so many steps ahead of its last row.
    """
    try:
        cells = json.loads(line)
    except (ValueError, RecursionError) as error:  # also of bytes that are no text, and of numbers without end
        raise RowError(f"not a line of JSON: {' '.join(str(error).split())}") from None
    if not isinstance(cells, dict):
        raise RowError(f"expected an object such as {{...}}, got {type(cells).__name__}")
    return read_row(cells, fitted, horizon, most_steps)


def read_row(cells: dict[str, Any], fitted: Fitted, horizon: int = 0, most_steps: int | None = None) -> Row:
    """The observation in an object of JSON; arguments as in `parse_row`."""
    settings, name = fitted.settings, _name(cells, fitted)
    time = _time(cells, fitted, name, most_steps)
    kept = {settings.id_column: name, settings.time_column: cells[settings.time_column]}
    for column in (*settings.modelled, *settings.future_inputs):
        if column not in cells:
            raise RowError(f"there is no {column!r}; a missing value is null")
        kept[column] = _number(cells[column], column)
    return Row(name, time, kept, _future(cells, settings.future_inputs, horizon))


def future_series(row: Row, settings: Settings, horizon: int) -> Series:
    """The times ahead, with what is known of them."""
    times = times_after(row.time, horizon, settings.freq)
    known = [(row.future or {})[column][:horizon] for column in settings.future_inputs]
    return Series.of_inputs(row.name, times, np.array(known, float).reshape(-1, horizon).T)


def _name(cells: dict[str, Any], fitted: Fitted) -> Name:
    column, known = fitted.settings.id_column, fitted.following.series
    if column not in cells:
        if len(known) == 1:
            return next(iter(known))
        raise RowError(f"there is no {column!r}: whose observation is it?")
    name = tuple(cells[column]) if isinstance(cells[column], list) else cells[column]  # JSON has no tuples
    if not is_name(name):
        raise RowError(f"{column!r} must be text or a whole number, got {_json(cells[column])}")
    # In a text table all names are text, so 7 and "7" mean the same series.
    text = str(name)
    for candidate in (name, text, int(text) if text.isdecimal() and len(text) <= LONGEST_NUMBER else name):
        if candidate in known:
            return candidate
    raise RowError(f"unknown series {shown(name)}")


def _time(cells: dict[str, Any], fitted: Fitted, name: Name, most_steps: int | None) -> Any:
    settings, last = fitted.settings, fitted.following.series[name].last_time
    column = settings.time_column
    if column not in cells:
        raise RowError(f"series {shown(name)}: there is no time {column!r}")
    time = cells[column]
    if isinstance(settings.freq, str):
        time = _timestamp(time, column, last)
    elif isinstance(time, bool) or not isinstance(time, int) or abs(time) >= 2**62:
        raise RowError(f"{column!r} must be a whole number, got {_json(time)}")
    if time <= last:
        raise PastRowError(f"series {shown(name)}: time {_plain(cells[column])} is not after the last one, {last}")
    if most_steps is None:
        return time
    # By the length of one step first: a far time would make a long grid.
    try:
        one = times_after(last, 1, settings.freq)[0] - last
        is_far = (time - last) / one > 2 * most_steps
        is_far = is_far or len(times_between(last, time, settings.freq)) - 1 > most_steps
    except TimeOutOfReachError as error:
        raise RowError(f"series {shown(name)}: {error}") from None
    if is_far:
        raise RowError(
            f"series {shown(name)}: time {_plain(cells[column])} is more than {most_steps} steps after the last, {last}"
        )
    return time


def _timestamp(value: Any, column: str, last: pd.Timestamp) -> pd.Timestamp:
    is_time = isinstance(value, str) and value.strip().lower() not in CLOCKS
    time = pd.to_datetime(value, format="ISO8601", errors="coerce") if is_time else pd.NaT
    if time is pd.NaT:
        raise RowError(f"{column!r} must be a time as text (ISO 8601), got {_json(value)}")
    try:
        found = in_zone_of(pd.DatetimeIndex([time]), last, f"{column!r} is {_json(value)}")[0]
        if found.as_unit(last.unit) != found:
            raise RowError(f"{column!r} is finer than the times of the fit, got {_json(value)}")
        return found.as_unit(last.unit)
    except RowError:
        raise
    except TableError as error:
        raise RowError(str(error)) from None
    except ValueError:  # the year 9999, counted in nanoseconds
        raise RowError(f"{column!r} is out of reach of the times of the fit, got {_json(value)}") from None


def _number(value: Any, column: str) -> float | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RowError(f"{column!r} must be a number or null, got {_json(value)}")
    if abs(value) > sys.float_info.max:
        raise RowError(f"{column!r} must be a finite number or null, got {shown(value)}")
    return float(value)


def _future(cells: dict[str, Any], columns: tuple[str, ...], horizon: int) -> dict[str, list[float]] | None:
    if not columns:
        return {}
    future = cells.get(FUTURE)
    if future is None:
        return None
    if not isinstance(future, dict):
        raise RowError(f"{FUTURE!r} must be an object with a list for each of {list(columns)}")
    found = {}
    for column in columns:
        values = future.get(column)
        if not isinstance(values, list) or len(values) < horizon:
            raise RowError(f"{FUTURE!r} must hold {horizon} values of {column!r}, got {_json(values)}")
        found[column] = [number for value in values if (number := _number(value, column)) is not None]
        if len(found[column]) < len(values):
            raise RowError(f"{FUTURE!r}: inputs that are known ahead must be known, {column!r} has a null")
    return found


def _json(value: Any) -> str:
    """A value as the line has it, but for the middle of a long one."""
    return cut(json.dumps(value))


def _plain(value: Any) -> str:
    return cut(str(value))
