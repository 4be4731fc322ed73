"""Deaths from covid-19 in US counties, as published by JHU CSSE (time_series_covid19_deaths_US.csv)."""

import csv
import io
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from smct_paper.datasets.contents import DataFileError, read_contents
from smct_paper.datasets.files import DataFile

FIRST_DAY, LAST_DAY, N_DAYS = "3/21/20", "5/20/20", 61

FILE = DataFile(
    names=("covid_deaths_US.csv", "time_series_covid19_deaths_US.csv"),
    publisher="JHU CSSE COVID-19",
    page="https://github.com/CSSEGISandData/COVID-19",
    licence="CC BY 4.0",
    csv="time_series_covid19_deaths_US.csv",
    address=(
        "https://raw.githubusercontent.com/CSSEGISandData/COVID-19/master/"
        "csse_covid_19_data/csse_covid_19_time_series/time_series_covid19_deaths_US.csv"
    ),
    download="time_series_covid19_deaths_US.csv",
    sha256=None,  # only a version of May 2020 was tested, not the last one (March 2023)
    first_line="Combined_Key",
    tested_sha256=("c0f65fed339c680ba05da17124d31c4b36f299efc0477b6b85002793a7599cd8",),
)


class CountyDeaths(NamedTuple):
    """Cumulative deaths of counties, one row each."""

    counties: list[str]
    days: list[str]
    cumulative: np.ndarray


def read_covid_deaths(path: Path, *, at_least: int = 100) -> CountyDeaths:
    """Cumulative deaths on the 61 days from 3/21/20 to 5/20/20, of counties whose 61 values sum to `at_least`."""
    header, rows = _read_rows(Path(path))
    name, first, last = header.index("Combined_Key"), header.index(FIRST_DAY), header.index(LAST_DAY)
    days = header[first : last + 1]
    if len(days) != N_DAYS:
        raise DataFileError(f"{path}: expected {N_DAYS} days from {FIRST_DAY} to {LAST_DAY}, got {len(days)}")
    counts = [_counts(row[first : last + 1], days, f"{path}, line {line}") for line, row in rows]
    values = np.array(counts).reshape(len(rows), N_DAYS)
    chosen = values.sum(axis=1) >= at_least
    counties = [row[name] for (_, row), keep in zip(rows, chosen, strict=True) if keep]
    return CountyDeaths(counties, days, values[chosen])


def daily_counts(cumulative: np.ndarray) -> np.ndarray:
    """New deaths of each day; a correction of earlier figures (a negative number) counts as missing (NaN)."""
    daily = np.diff(cumulative, axis=1)
    return np.where(daily < 0, np.nan, daily)


def _read_rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and the rows with their lines in the file."""
    try:
        text = read_contents(path, FILE.csv).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError(f"{path} is not a file of text in UTF-8: {error}") from error
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader, [])
    for column in (FIRST_DAY, LAST_DAY, "Combined_Key"):
        if column not in header:
            raise DataFileError(f"{path} has no column {column!r}: expected the layout of JHU's deaths in US counties")
    rows = [(reader.line_num, row) for row in reader if row]
    for line, row in rows:
        if len(row) != len(header):
            raise DataFileError(f"{path}, line {line}: expected {len(header)} cells, got {len(row)}")
    return header, rows


def _counts(texts: list[str], days: list[str], place: str) -> np.ndarray:
    values = np.array([_number(text) for text in texts])
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        first = int(wrong.argmax())
        raise DataFileError(f"{place}, column {days[first]!r}: expected a number of deaths, got {texts[first]!r}")
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
