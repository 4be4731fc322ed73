"""Reading tables: every series on its regular grid, missing rows filled by NaN, mistakes named.

A table is long: one row for each series and time. What is wrong with one is said with column, series and row (counted
from 0), so that it can be found.
"""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from smc_transformer.forecaster.frequency import (
    FARTHEST,
    TimeOutOfReachError,
    steps_between,
    times_after,
    times_between,
)
from smc_transformer.forecaster.names import Name as Name
from smc_transformer.forecaster.names import is_name, name_array
from smc_transformer.forecaster.periods import as_shown, frequency_of, period_frequency
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.times import parse_times
from smc_transformer.support.checks import shown

MOST_STEPS = 10_000
"""That a series may jump from one row to the next: each is a filter step, and a mistaken date would be a million."""
LONGEST_SPARSE = 1_000_000
"""Places of a grid that may be empty nearly everywhere; a longer one says that the frequency is wrong."""


class TableError(ValueError):
    """A table that cannot be used, and why."""


@dataclass(frozen=True)
class Series:
    """One series on its grid."""

    name: Name
    times: pd.Index  # all from its first row to its last
    values: Float[np.ndarray, "row modelled"]  # modelled columns; NaN is missing
    known: Float[np.ndarray, "row input"]  # inputs that are known ahead

    @classmethod
    def of_inputs(cls, name: Name, times: pd.Index, known: Float[np.ndarray, "row input"]) -> "Series":
        """Times ahead, of which the inputs are known and the values are not."""
        return cls(name, times, np.empty((len(times), 0)), known)

    def __len__(self) -> int:
        return len(self.times)

    def rows(self, chosen: slice) -> "Series":
        """Some rows of it."""
        return Series(self.name, self.times[chosen], self.values[chosen], self.known[chosen])


def hash_of(name: Name) -> int:
    """A whole number of 63 bits for the name of a series: the same in every process and on every machine."""
    text = f"{type(name).__name__}:{name}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def as_pandas(table: Any) -> pd.DataFrame:
    """A pandas table; those of polars and pyarrow know how to become one."""
    if isinstance(table, pd.DataFrame):
        return table
    try:
        found = table.to_pandas() if hasattr(table, "to_pandas") else None
    except ImportError as error:  # polars does it by way of pyarrow
        raise ImportError(
            f"a table of {type(table).__module__.partition('.')[0]} becomes one of pandas by pyarrow: "
            f"pip install 'smc-transformer[parquet]' ({error})"
        ) from None
    if not isinstance(found, pd.DataFrame):  # such as one column, or a query that has not run yet
        raise TypeError(
            f"expected a table of pandas, polars or pyarrow, got {type(table).__name__}; a table has columns of times, "
            "of values, and of names where there are several series"
        )
    return found


class Rows(NamedTuple):
    """The rows of a table, checked one by one, in its order."""

    names: list[Name]
    times: pd.Index
    values: Float[np.ndarray, "row value"]
    known: Float[np.ndarray, "row input"]  # inputs that are known ahead

    def take(self, chosen: list[int]) -> "Rows":
        """Some of them."""
        if len(chosen) == len(self.names) and chosen == list(range(len(chosen))):
            return self
        names = [self.names[number] for number in chosen]
        return Rows(names, self.times[chosen], self.values[chosen], self.known[chosen])


def read_rows(table: Any, settings: Settings, *, values: Sequence[str] | None = None, zone_of: Any = None) -> Rows:
    """The rows of a table; arguments as in `read_series`."""
    table = as_pandas(table)
    values = settings.modelled if values is None else values
    wanted = (settings.id_column, settings.time_column, *values, *settings.future_inputs)
    check_columns(table, wanted)
    if len(table) == 0:
        raise TableError("the table has no rows")
    # Not table[column]: pandas would make an index of the names first, which takes longer than a row does.
    series = {str(name): column for name, column in table.items() if name in wanted}
    names = read_names(series[settings.id_column], settings.id_column)
    times = _times(series[settings.time_column], settings)
    if zone_of is not None:
        times = in_zone_of(times, zone_of, f"column {settings.time_column!r}")
    columns = {column: _numbers(series[column], column) for column in wanted[2:]}
    _check_numbers(columns, settings, names, times)
    numbers = np.stack(list(columns.values()), axis=1)
    return Rows(names, times, numbers[:, : len(values)], numbers[:, len(values) :])


def read_series(
    table: Any,
    settings: Settings,
    *,
    values: Sequence[str] | None = None,
    zone_of: Any = None,
    after: dict[Name, Any] | None = None,
    known_gaps: bool = False,
) -> list[Series]:
    """The series of a table, in the order in which they first appear.

    `values` are the columns of the values; None: all that the model predicts. All times are taken over into the zone of
    the time `zone_of`, or refused where they cannot be. Series with a time in `after`, that of their last row, go on:
    they begin one step later, and others begin where they can go on. Known inputs may be missing, as NaN, only with
    `known_gaps`.
    """
    names, times, *numbers = read_rows(table, settings, values=values, zone_of=zone_of)
    found = []
    for name, rows in _rows_by_series(names).items():
        grid, places = _on_grid(name, times[rows], rows, settings, None if after is None else after.get(name))
        if after is not None and name not in after:
            times_ahead(name, times[rows[-1]], 1, settings, table)
        full = [np.full((len(grid), part.shape[1]), np.nan) for part in numbers]
        for part, given in zip(full, numbers, strict=True):
            part[places] = given[rows]
        series = Series(name, grid, *full)
        if not known_gaps:
            check_known(series, settings.future_inputs)
        found.append(series)
    return found


def times_ahead(name: Name, last: Any, n_steps: int, settings: Settings, table: pd.DataFrame | None = None) -> pd.Index:
    """The next times of a series after its last, which comes from a table or is one that is known."""
    try:
        return times_after(last, n_steps, settings.freq)
    except TimeOutOfReachError as error:
        which = str(last)
        if table is not None:
            which = f"row {max(row for row, one in enumerate(table[settings.id_column]) if one == name)} ({last})"
        raise TableError(
            f"series {shown(name)}, column {settings.time_column!r}: {n_steps} steps of freq={settings.freq!r} after "
            f"{which} cannot be dated, as {error}"
        ) from None


def check_columns(table: pd.DataFrame, columns: Sequence[str]) -> None:
    """That a table has these columns."""
    there = table.columns.tolist()
    if absent := [column for column in columns if column not in there]:
        raise TableError(f"the table has no column {shown(absent[0])}; it has {shown(there)}")
    for column in columns:
        if (twice := there.count(column)) > 1:
            raise TableError(f"the table has {twice} columns {shown(column)}: which one is meant?")


def check_times(table: pd.DataFrame, column: str) -> None:
    """That a table which is seen for the first time has the column of times: its user may call it otherwise."""
    if column not in (there := table.columns.tolist()):
        raise TableError(
            f"the table has no column {shown(column)}; it has {shown(there)}: say which one holds the times, by "
            "time_column= (in the shell --time)"
        )


def filled(column: pd.Series, name: str, need: str) -> pd.Series:
    """A column without empty cells; `need` says why there may be none."""
    empty = column.isna().to_numpy()
    if empty.any():
        raise TableError(f"column {name!r} is empty in row {int(empty.argmax())}: every row {need}")
    return column


def read_names(column: pd.Series, id_column: str) -> list[Name]:
    """The series of each row."""
    names = column.tolist()
    if all(map(is_name, names)):
        return names
    filled(column, id_column, "belongs to a series")
    row, name = next((row, name) for row, name in enumerate(names) if not is_name(name))
    raise TableError(f"column {id_column!r} must hold text or whole numbers, got {shown(name)} in row {row}")


def _times(column: pd.Series, settings: Settings) -> pd.Index:
    name, kind = settings.time_column, column.dtype
    stamps = isinstance(kind, pd.DatetimeTZDtype) or (isinstance(kind, np.dtype) and kind.kind == "M")
    if stamps and isinstance(settings.freq, str) and period_frequency(settings.freq) is None:
        times = pd.DatetimeIndex(column.array)  # the usual case, without more ado
        if not times.hasnans:
            return times
    if not isinstance(kind, np.dtype) or kind.kind != "i":  # whole numbers of numpy cannot be missing
        filled(column, name, "needs a time")
    if not isinstance(settings.freq, str):
        if not pd.api.types.is_integer_dtype(column.dtype):
            raise TableError(
                f"freq={settings.freq!r} means whole-number times, but column {name!r} holds {column.dtype}"
            )
        far = (column >= FARTHEST) | (column <= -FARTHEST)
        if far.any():
            row = int(far.to_numpy().argmax())
            raise TableError(f"column {name!r} is out of reach in row {row}: {shown(column.iloc[row])}")
        return pd.Index(column.to_numpy("int64"))
    if pd.api.types.is_numeric_dtype(column.dtype):
        raise TableError(
            f"freq={settings.freq!r} means timestamps, but column {name!r} holds {column.dtype}; "
            f"for whole-number times give a whole number as freq"
        )
    times, inside = as_timestamps(column, name), period_frequency(settings.freq)
    # A period that is given by any moment of it is counted by its first.
    return times if inside is None or times.tz is not None else times.to_period(inside).to_timestamp()


def as_timestamps(column: pd.Series, name: str) -> pd.DatetimeIndex:
    """A column of times, dates, periods (their first moments), or text in ISO 8601."""
    if frequency_of(column.dtype) is not None:
        return pd.DatetimeIndex(column.dt.to_timestamp())
    if pd.api.types.is_string_dtype(column.dtype) or pd.api.types.is_object_dtype(column.dtype):
        column = parse_times(column, name, None, TableError)
    try:
        return pd.DatetimeIndex(column)
    except (ValueError, TypeError):
        raise TableError(f"column {name!r} must hold timestamps, it holds {column.dtype}") from None


def in_zone_of(times: pd.Index, known: Any, where: str) -> pd.Index:
    """Times in the time zone of one that is known; those without a zone cannot be compared with those that have one.

    Whole numbers have no zones. `where` says in the error what the times belong to.
    """
    if not isinstance(times, pd.DatetimeIndex):
        return times
    if (times.tz is None) != (known.tz is None):
        raise TableError(f"{where}: times {_zone(times)}, but those of the fit {_zone(known)}")
    return times if times.tz is None else times.tz_convert(known.tz)


def with_times(table: pd.DataFrame, column: str, known: Any) -> pd.DataFrame:
    """The table with its times as timestamps in the zone of those known; unchanged where these are whole numbers.

    Where those known are periods, times become these.
    """
    if column not in table.columns or frequency_of(table[column].dtype) is not None:
        return table
    if isinstance(known, pd.PeriodIndex):
        return table.assign(**{column: as_shown(as_timestamps(table[column], column), str(known.dtype))})
    if not isinstance(known, (pd.Timestamp, pd.DatetimeIndex)):
        return table
    return table.assign(**{column: in_zone_of(as_timestamps(table[column], column), known, f"column {column!r}")})


def _zone(times: Any) -> str:
    return "have no time zone" if times.tz is None else f"are in {times.tz}"


def _numbers(column: pd.Series, name: str) -> Float[np.ndarray, "row"]:
    kind = column.dtype
    if isinstance(kind, np.dtype) and kind == np.float64:
        return np.ascontiguousarray(column.to_numpy())
    if pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind):
        with np.errstate(over="ignore"):  # numbers of 80 bits may be infinite in 64: those are named later
            return column.to_numpy(dtype="float64", na_value=np.nan)
    is_text = pd.api.types.is_object_dtype(kind) or pd.api.types.is_string_dtype(kind)
    if not is_text and not isinstance(kind, pd.CategoricalDtype):  # pandas would count the days of a date
        raise TableError(f"column {name!r} must hold numbers, it holds {kind}")
    values = column.astype(object)
    wrong = np.fromiter((not _may_be_number(value) for value in values), dtype=bool, count=len(values))
    converted = pd.to_numeric(values.mask(wrong), errors="coerce")
    wrong |= (converted.isna() & ~values.isna()).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        raise TableError(f"column {name!r} must hold numbers, got {shown(values.iloc[row])} in row {row}")
    return converted.to_numpy(dtype="float64", na_value=np.nan)


def _may_be_number(value: Any) -> bool:
    """Whether a cell is a number, text that may be one, or missing."""
    if isinstance(value, np.timedelta64):  # which numpy counts among the whole numbers
        return False
    if isinstance(value, Integral):
        return abs(int(value)) <= sys.float_info.max
    return isinstance(value, (str, Real, Decimal)) or value is None or value is pd.NA or value is pd.NaT


def _rows_by_series(names: list[Name]) -> dict[Name, Int[np.ndarray, "row"]]:
    codes, unique = pd.factorize(name_array(names))
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(unique)))
    return dict(zip(unique.tolist(), np.split(order, ends[:-1]), strict=True))


def _check_numbers(
    columns: dict[str, Float[np.ndarray, "row"]], settings: Settings, names: list[Name], times: pd.Index
) -> None:
    """That columns have no values that their scaling or the distribution cannot have."""
    kinds, support = dict(zip(settings.modelled, settings.kinds(), strict=True)), settings.support()
    for column, values in columns.items():
        reasons = {"a missing value is NaN": np.isinf(values)}
        if kinds.get(column) == "log1p":
            reasons['scaling="log1p" is for values of at least 0'] = values < 0
        if support is not None and column in kinds:
            reasons[support.description] = support.denies(torch.tensor(values)).numpy()
        for reason, wrong in reasons.items():
            if wrong.any():
                row = int(wrong.argmax())
                value = "infinite" if np.isinf(values[row]) else f"{values[row]:g}"
                raise TableError(
                    f"series {shown(names[row])}, column {column!r} is {value} at {times[row]} (row {row}); {reason}"
                )


def _on_grid(
    name: Name, times: pd.Index, rows: Int[np.ndarray, "row"], settings: Settings, before: Any
) -> tuple[pd.Index, Int[np.ndarray, "row"]]:
    """The grid of a series and the place of each row on it."""
    column, freq = settings.time_column, settings.freq
    if before is not None and times[0] <= before:
        raise TableError(
            f"series {shown(name)}, column {column!r}: row {rows[0]} ({times[0]}) is not after the last row known, "
            f"{before}"
        )
    steps = times[1:] > times[:-1]
    if not steps.all():
        place = int(np.flatnonzero(~steps)[0])
        problem = "has two rows of the same time" if times[place] == times[place + 1] else "is not sorted by time"
        raise TableError(
            f"series {shown(name)} {problem}, column {column!r}: row {rows[place]} ({times[place]}) "
            f"is followed by row {rows[place + 1]} ({times[place + 1]})"
        )
    try:
        _check_jumps(name, times if before is None else pd.Index([before]).append(times), rows, settings)
        grid = times_between(times[0] if before is None else before, times[-1], freq)
    except TimeOutOfReachError as error:
        last = f"to row {rows[-1]} ({times[-1]})"
        raise TableError(
            f"series {shown(name)}, column {column!r}, row {rows[0]} ({times[0]}) {last}: {error}"
        ) from None
    places = grid.get_indexer(times)
    if (places < 0).any():
        place = int(np.flatnonzero(places < 0)[0])
        raise TableError(
            f"series {shown(name)}, column {column!r}: row {rows[place]} ({times[place]}) is not on the grid of "
            f"freq={freq!r} that begins at {grid[0] if len(grid) else times[0]}"
        )
    return (grid, places) if before is None else (grid[1:], places - 1)


def _check_jumps(name: Name, times: pd.Index, rows: Int[np.ndarray, "row"], settings: Settings) -> None:
    """That no row is so far from the one before that the steps between would go on for ever.

    `times` are those of the rows, or begin with the last time before them.
    """
    if len(times) < 2:
        return
    steps = steps_between(times, settings.freq)
    far = np.flatnonzero(steps > MOST_STEPS)
    where = f"series {shown(name)}, column {settings.time_column!r}"
    if len(far):
        place = int(far[0])
        row = rows[place + 1 - (len(times) - len(rows))]
        raise TableError(
            f"{where}: row {row} ({times[place + 1]}) is {steps[place]:.0f} steps of freq={settings.freq!r} after "
            f"{times[place]}, and at most {MOST_STEPS} can be missing: is the time right?"
        )
    if steps.sum() > max(LONGEST_SPARSE, 100 * len(times)):
        raise TableError(
            f"{where}: {len(times)} rows lie {steps.sum():.0f} steps of freq={settings.freq!r} apart, "
            f"so that nearly all would be missing: is the frequency right?"
        )


def check_known(series: Series, columns: tuple[str, ...]) -> None:
    """That inputs that are known ahead are."""
    missing = np.argwhere(np.isnan(series.known))
    if len(missing):
        row, column = missing[0]
        raise TableError(
            f"series {shown(series.name)} has no value of the known input {columns[column]!r} at {series.times[row]}: "
            f"inputs that are known ahead must be known at every time"
        )
