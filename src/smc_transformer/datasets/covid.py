"""Deaths from covid-19 in US counties, as published by JHU CSSE (time_series_covid19_deaths_US.csv)."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

FIRST_DAY, LAST_DAY = "3/21/20", "5/20/20"


class CountyDeaths(NamedTuple):
    """Cumulative deaths of counties, one row each."""

    counties: list[str]
    days: list[str]
    cumulative: np.ndarray


def read_covid_deaths(path: Path, *, at_least: int = 100) -> CountyDeaths:
    """Cumulative deaths on the 61 days from 3/21/20 to 5/20/20, of counties whose 61 values sum to `at_least`."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    for day in (FIRST_DAY, LAST_DAY):
        if day not in header:
            raise ValueError(f"{path} has no column {day!r}: expected the layout of JHU's deaths in US counties")
    name, first, last = header.index("Combined_Key"), header.index(FIRST_DAY), header.index(LAST_DAY)
    values = np.array([[float(value) for value in row[first : last + 1]] for row in rows])
    chosen = values.sum(axis=1) >= at_least
    counties = [row[name] for row, keep in zip(rows, chosen, strict=True) if keep]
    return CountyDeaths(counties, header[first : last + 1], values[chosen])


def daily_counts(cumulative: np.ndarray) -> np.ndarray:
    """New deaths of each day; a correction of earlier figures (a negative number) counts as missing (NaN)."""
    daily = np.diff(cumulative, axis=1)
    return np.where(daily < 0, np.nan, daily)
