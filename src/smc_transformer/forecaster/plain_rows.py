"""A few rows of a plain table, read without the machinery of pandas, which takes longer than a filter step.

A table is plain if it is one of pandas whose columns have the usual types and hold valid values. Anything else
is left to `table.read_rows`, which knows all types and says what is wrong: here nothing is ever refused.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from smc_transformer.forecaster.frequency import FARTHEST
from smc_transformer.forecaster.names import Name
from smc_transformer.forecaster.periods import period_frequency
from smc_transformer.forecaster.settings import Settings

FEW = 8
"""Rows up to which going through them one by one is quicker than through columns."""


class PlainRows(NamedTuple):
    """What `read_rows` would read, and the columns of names and times, as a table can take them over."""

    names: list[Name]
    times: list[Any]
    values: Float[np.ndarray, "row modelled"]  # none is missing
    known: Float[np.ndarray, "row input"]
    name_column: Any
    time_column: Any


def read_plain(table: Any, settings: Settings, zone_of: Any) -> PlainRows | None:
    """The rows of a table, if they are few and plain, in the time zone of `zone_of`; None: let others read them."""
    if type(table) is not pd.DataFrame or not 0 < len(table) <= FEW or settings.support() is not None:
        return None
    array_of: Callable[[int], Any] | None = getattr(table, "_get_column_array", None)  # not promised by pandas
    wanted = (settings.id_column, settings.time_column, *settings.modelled, *settings.future_inputs)
    columns = list(table.columns)  # not `tolist`, which goes by way of numpy
    if array_of is None or any(columns.count(name) != 1 for name in wanted):
        return None
    names, times, *numbers = (array_of(columns.index(name)) for name in wanted)
    if not isinstance(names.dtype, pd.StringDtype) and names.dtype != object:
        return None
    own_names, own_times = list(names), _times(times, settings.freq, zone_of)
    plain_numbers = all(type(column) is np.ndarray and column.dtype.kind in "fi" for column in numbers)
    if own_times is None or not plain_numbers or not all(type(name) is str for name in own_names):
        return None
    cells = np.array(numbers, dtype=np.float64).T
    if not np.isfinite(cells).all():
        return None
    n_modelled = len(settings.modelled)
    shown = own_names if names.dtype == object else names
    return PlainRows(own_names, own_times, cells[:, :n_modelled], cells[:, n_modelled:], shown, times)


def _times(column: Any, freq: Any, zone_of: Any) -> list[Any] | None:
    """The times of a column, if it has the type that they are of inside."""
    if not isinstance(freq, str):
        whole = type(column) is np.ndarray and column.dtype == np.int64
        times = column.tolist() if whole else []
        return times if times and all(-FARTHEST < time < FARTHEST for time in times) else None
    if not isinstance(column, pd.arrays.DatetimeArray) or period_frequency(freq) is not None:
        return None
    if zone_of is None or column.tz != zone_of.tz:
        return None
    times = [column[row] for row in range(len(column))]
    return None if any(time is pd.NaT for time in times) else times
