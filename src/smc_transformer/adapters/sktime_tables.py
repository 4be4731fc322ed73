"""Tables of sktime as long tables of the forecaster, and back.

sktime keeps series in an index whose last level is time; the levels above it, if there are any, say which series a row
belongs to. Columns may have any names, also the same in y and X, so that inside they are numbered: y0, y1, ..., x0, ...
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from smc_transformer.forecaster.names import ONLY_SERIES, Name, is_name, name_array

ID, TIME = "unique_id", "ds"


def target_columns(y: pd.DataFrame) -> list[str]:
    """What the columns of y are called inside."""
    return [f"y{number}" for number in range(y.shape[1])]


def input_columns(x: pd.DataFrame | None) -> list[str]:
    """What the columns of X are called inside."""
    return [] if x is None else [f"x{number}" for number in range(x.shape[1])]


def name_of(key: Any) -> Name:
    """The name of a series from its levels, which may be numbers of numpy or other things that can be shown."""
    parts = key if isinstance(key, tuple) else (key,)
    plain = tuple(part.item() if isinstance(part, np.generic) else part for part in parts)
    named = tuple(part if is_name(part) else str(part) for part in plain)
    return named if isinstance(key, tuple) else named[0]


def keys_of(index: pd.Index) -> list[Any]:
    """The series in an index, by their levels, in order; one without levels is called None."""
    return list(index.droplevel(-1).unique()) if isinstance(index, pd.MultiIndex) else [None]


def long_table(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows of a frame with series and time in columns; its own columns by their numbered names."""
    found = pd.DataFrame(frame.to_numpy(dtype="float64", na_value=np.nan), columns=list(columns))
    if isinstance(frame.index, pd.MultiIndex):
        names: list[Name] = [name_of(key) for key in frame.index.droplevel(-1)]
        found[ID], times = name_array(names), frame.index.get_level_values(-1)
    else:
        found[ID], times = ONLY_SERIES, frame.index
    found[TIME] = pd.Series(times)
    return found


def frequency_of(index: pd.Index) -> str | int | None:
    """The frequency that an index tells by itself; None: to be taken from its times."""
    times = index.levels[-1] if isinstance(index, pd.MultiIndex) else index
    if isinstance(times, pd.DatetimeIndex):
        return None if times.freq is None else times.freqstr
    if isinstance(times, pd.RangeIndex):
        return int(times.step)
    if pd.api.types.is_integer_dtype(times.dtype) and len(times) == 1:
        return 1
    return None


def answer_index(keys: Sequence[Any], like: pd.Index, times: pd.Index) -> pd.Index:
    """The index of an answer: each of the times for every series, with the levels of an index that is known."""
    if not isinstance(like, pd.MultiIndex):
        return times
    rows = [(*(key if isinstance(key, tuple) else (key,)), time) for key in keys for time in times]
    return pd.MultiIndex.from_tuples(rows, names=like.names)
