"""A table of observations over time, read from a csv file with every value checked."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from smct_paper.datasets.contents import DataFileError, read_contents

SECOND = np.timedelta64(1, "s")


@dataclass(frozen=True)
class Table:
    """Observations, one row for each time."""

    times: Shaped[np.ndarray, "row"]  # strictly increasing, datetime64[s]
    values: Float[np.ndarray, "row column"]  # NaN is missing
    columns: tuple[str, ...]  # names of the values
    # the regular time between rows, against which gaps are measured; None if there are no gaps by definition
    # (days of trade)
    step: np.timedelta64 | None


def read_table(
    path: Path,
    csv: str,
    columns: tuple[str, ...],
    *,
    time_columns: tuple[str, ...],  # together (with a space between) they are the time
    time_formats: tuple[str, ...],  # as for strptime; the first row tells which of them it is
    separator: str = ",",
    decimal: str = ".",
    missing: float | None = None,  # a number that stands for a missing value
    other_names: Mapping[str, str] | None = None,  # of columns, which stand for names in `columns`
    skip_repeated_rows: bool = False,  # leave out rows that repeat an earlier row word for word
    step: np.timedelta64 | None = None,  # the regular time between rows
) -> Table:
    """Read the named columns of a csv, which may be packed by gzip, or by zip as the member `csv`.

    An empty cell, or the number `missing`, becomes NaN. Anything else that is not a finite number is an error, and so
    are times that do not increase.
    """
    cells = _read_cells(path, csv, separator).rename(columns=dict(other_names or {}))
    for name in (*time_columns, *columns):
        if name not in cells.columns:
            raise DataFileError(f"{path} has no column {name!r}; its columns are {', '.join(map(str, cells.columns))}")
    if skip_repeated_rows:
        cells = cells[~cells.duplicated()]
    times = _read_times(path, cells, time_columns, time_formats)
    values = np.stack([_read_numbers(path, cells[name], decimal) for name in columns], axis=1)
    if missing is not None:
        values[values == missing] = np.nan
    return Table(times, values, columns, step)


def _read_cells(path: Path, csv: str, separator: str) -> Any:
    """A pandas frame of text, without blank lines; its index tells the lines of the file."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("reading data files needs pandas: pip install 'smc-transformer[experiments]'") from error
    contents = io.BytesIO(read_contents(path, csv))
    try:
        cells = pandas.read_csv(
            contents, sep=separator, dtype=str, keep_default_na=False, skip_blank_lines=False, index_col=False
        )
    except (ValueError, pandas.errors.ParserError) as error:  # an empty file and bad characters are ValueErrors
        raise DataFileError(f"{path} is not a table of text separated by {separator!r}: {error}") from error
    cells.columns = [str(name).strip() for name in cells.columns]
    cells = cells.fillna("")  # the cells that short rows lack
    cells = cells[(cells != "").any(axis=1)]
    if cells.empty:
        raise DataFileError(f"{path} has no rows")
    return cells


def _read_numbers(path: Path, cells: Any, decimal: str) -> Float[np.ndarray, "row"]:
    import pandas

    text = cells.str.strip()
    if decimal != ".":
        text = text.str.replace(decimal, ".", regex=False)
    numbers = pandas.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, copy=True)
    wrong = ~np.isfinite(numbers) & (text != "").to_numpy()
    if wrong.any():
        first, place = _first(wrong, path, cells, (cells.name,))
        raise DataFileError(f"{place}: expected a finite number, got {cells.iloc[first]!r}")
    return numbers


def _read_times(
    path: Path, cells: Any, columns: tuple[str, ...], formats: tuple[str, ...]
) -> Shaped[np.ndarray, "row"]:
    import pandas

    texts = cells[list(columns)].agg(" ".join, axis=1) if len(columns) > 1 else cells[columns[0]]
    texts = texts.str.strip()
    for form in formats:
        times = pandas.to_datetime(texts, format=form, errors="coerce")
        if not pandas.isna(times.iloc[0]):
            break
    unread = times.isna().to_numpy()
    if unread.any():
        first, place = _first(unread, path, cells, columns)
        example = pandas.Timestamp(2016, 12, 31, 23).strftime(form)
        raise DataFileError(f"{place}: expected a time such as {example!r}, got {texts.iloc[first]!r}")
    values = times.to_numpy().astype("datetime64[s]")
    wrong = np.diff(values, prepend=values[:1] - SECOND) < SECOND
    if wrong.any():
        first, place = _first(wrong, path, cells, columns)
        raise DataFileError(f"{place}: times must increase, got {values[first]} after {values[first - 1]}")
    return values


def _first(wrong: Bool[np.ndarray, "row"], path: Path, rows: Any, columns: tuple[str, ...]) -> tuple[int, str]:
    """The first wrong row of a frame or column, and where it is in the file (the header is line 1)."""
    first = int(wrong.argmax())
    return first, f"{path}, line {int(rows.index[first]) + 2}, column {' and '.join(map(repr, columns))}"
