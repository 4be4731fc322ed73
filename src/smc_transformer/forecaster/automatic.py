"""What a user has not set, chosen from the table: columns, frequency, seasons, calendar, history, distribution.

Every choice is told in words, and can be overridden by the argument of its name. In a process group, where each process
has a table of its own series, the choices are those of one table with all of them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from smc_transformer.forecaster.columns import check_apart
from smc_transformer.forecaster.frequency import infer_frequency, offset_of
from smc_transformer.forecaster.names import as_one_series, name_array
from smc_transformer.forecaster.periods import frequency_of
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import (
    Series,
    TableError,
    as_pandas,
    as_timestamps,
    check_columns,
    check_times,
    read_names,
    read_series,
    times_ahead,
)
from smc_transformer.support import processes

OPEN = ("input_size", "targets", "freq", "calendar", "scaling", "seasons")
"""Settings that may be left open, as None."""
LARGEST_INPUT = 48
"""Rows of history in a training window, if not set: the view remembers what came before them."""
SMALLEST_INPUT = 12
ZEROS_OF_COUNTS = 0.2
"""Share of zeros from which whole numbers are modelled as counts; others are close to continuous."""
POSSIBLE_SEASONS = (4, 5, 7, 12, 24, 52, 168)
"""Seasons that are looked for where times are whole numbers, which say nothing about them."""
LONGEST_SEASON = 1500


class Choices(NamedTuple):
    """Settings without gaps, and what was chosen, by the name of the setting, in words."""

    settings: Settings
    words: dict[str, str]


def provisional(asked: Mapping[str, Any]) -> Settings:
    """The settings as far as they are known, with others in place of those that a table will tell: checks them."""
    if not isinstance(asked.get("config"), Mapping | None):
        raise TypeError(f"config must be a dictionary of settings, got {type(asked['config']).__name__}")
    fixed = {name: value for name, value in asked.items() if name not in OPEN or value is not None}
    if asked.get("calendar") and "freq" not in fixed:
        fixed["freq"] = "h"  # calendar features need timestamps: the table will tell which
    fixed.setdefault("scaling", _scaling(asked))
    fixed.setdefault("input_size", LARGEST_INPUT)
    return Settings.from_dict(fixed)


def choose(asked: Mapping[str, Any], df: Any) -> Choices:
    """All settings, from those that a user has given and a table."""
    given = {name: asked[name] for name in OPEN if asked.get(name) is not None}
    table = processes.together(partial(_checked, as_pandas(df), asked))
    words: dict[str, str] = {}
    found = dict(asked)
    if "targets" not in given:
        found["targets"] = processes.made_by_first(partial(_target, table, asked))
        words["targets"] = f"column {found['targets']!r}"
    if "freq" not in given:
        found["freq"] = _frequency(table, asked["id_column"], asked["time_column"])
        words["freq"] = f"{found['freq']!r}, which all times lie on"
    # The rest is chosen from the values; read as numbers, whatever they may be the distribution of.
    plain = {"scaling": "none", "calendar": (), "input_size": 2, "seasons": (), "config": {}}
    series = processes.together(partial(_read, table, Settings.from_dict({**found, **plain})))
    lengths = sorted(chain(*processes.gather([len(one) for one in series])))
    longest, middle = lengths[-1], lengths[len(lengths) // 2]
    if "scaling" not in given:
        found["scaling"] = _scaling(asked)
        if found["scaling"] == "local":
            words["scaling"] = "local: each row relative to what simple forecasts say about it"
    if found["scaling"] == "local" and "observation" not in (asked.get("config") or {}):
        share = zeros_of_counts(series, len(_names(found["targets"])) + len(_names(found.get("past_inputs") or ())))
        if share is not None and share >= ZEROS_OF_COUNTS:
            found["config"] = {**(asked.get("config") or {}), "observation": "negative_binomial"}
            words["observation"] = f"negative binomial: whole numbers of at least 0, {100 * share:.0f} % of them 0"
        else:
            words["observation"] = "Student-t, around what simple forecasts say"
    if "seasons" not in given:
        found["seasons"] = _seasons(found["freq"], middle, series) if found["scaling"] == "local" else ()
        if found["scaling"] == "local":
            words["seasons"] = ", ".join(f"{season} rows" for season in found["seasons"]) or "none"
    if "calendar" not in given:
        found["calendar"] = _calendar(found["freq"], longest) if found["scaling"] == "local" else ()
        if found["calendar"]:
            words["calendar"] = ", ".join(found["calendar"])
    if "input_size" not in given:
        found["input_size"] = LARGEST_INPUT
        if found["scaling"] == "local":
            season = found["seasons"][0] if found["seasons"] else 1
            wanted = min(max(2 * season, int(asked["horizon"]), SMALLEST_INPUT), LARGEST_INPUT)
            found["input_size"] = max(2, min(wanted, longest - 1))
        words["input_size"] = f"{found['input_size']} rows of history in a training window"
    settings = Settings.from_dict(found)
    check_apart(settings.id_column, settings.time_column, settings.targets)
    return Choices(settings, words)


def zeros_of_counts(series: Sequence[Series], n_columns: int) -> float | None:
    """The share of zeros if all values are whole numbers of at least 0, else None."""
    values = np.concatenate([one.values[:, :n_columns].ravel() for one in series])
    values = values[~np.isnan(values)]
    others = int(((values < 0) | (values != np.floor(values))).sum())
    counts = processes.gather(np.array([len(values), others, int((values == 0).sum())]))
    n_values, n_others, n_zeros = np.sum(counts, axis=0).tolist()
    return None if n_values == 0 or n_others else n_zeros / n_values


def _checked(table: pd.DataFrame, asked: Mapping[str, Any]) -> pd.DataFrame:
    check_times(table, asked["time_column"])
    table = as_one_series(table, asked["id_column"])
    check_columns(table, (asked["id_column"], asked["time_column"]))
    if len(table) == 0:
        raise TableError("the table has no rows")
    return table


def _scaling(asked: Mapping[str, Any]) -> str:
    classes = (asked.get("config") or {}).get("observation") == "categorical"
    return "none" if classes else "local"


def _names(value: Sequence[str] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _target(table: pd.DataFrame, asked: Mapping[str, Any]) -> str:
    """The column called y, or the only one with numbers."""
    taken = {asked["id_column"], asked["time_column"]}
    taken |= {name for role in ("future_inputs", "past_inputs") for name in _names(asked.get(role) or ())}
    if "y" in table.columns and "y" not in taken:
        return "y"
    kinds = zip(table.columns, table.dtypes, strict=True)
    numeric = [str(name) for name, kind in kinds if name not in taken and pd.api.types.is_numeric_dtype(kind)]
    if len(numeric) != 1:
        example = numeric[0] if numeric else "sales"
        raise TableError(
            f"which column is to be forecast? There is none called 'y', and {len(numeric)} others hold numbers "
            f"{numeric}: name it, as in targets=[{example!r}] (in the shell --target {example})"
        )
    return numeric[0]


def _frequency(table: pd.DataFrame, id_column: str, time_column: str) -> Any:
    if (periods := frequency_of(table[time_column].dtype)) is not None:
        return periods
    # A thousand series tell as much as all.
    by_series = chain(*processes.gather_made(partial(_first_times, table, id_column, time_column, 1000)))
    try:
        return infer_frequency(list(by_series)[:1000])
    except ValueError as error:
        longest = _longest_step(table, id_column, time_column)
        raise TableError(f"column {time_column!r}: {error}{longest}") from None


def _longest_step(table: pd.DataFrame, id_column: str, time_column: str) -> str:
    """Between which rows it lies: where times lie on no grid, one of the two is often wrong."""
    times = _times(table[time_column], time_column)
    counts = times.asi8 if isinstance(times, pd.DatetimeIndex) else times.to_numpy()
    rows = pd.DataFrame({"count": counts.astype("float64"), "row": range(len(counts))})
    before = rows.groupby(table[id_column].to_numpy(), sort=False).shift()
    steps = (rows["count"] - before["count"]).abs()
    if steps.isna().all():
        return ""
    row = int(steps.idxmax())
    first = int(before["row"][row])
    return f"; the longest step is that from row {first} ({times[first]}) to row {row} ({times[row]})"


def _read(table: pd.DataFrame, settings: Settings) -> list[Series]:
    """The series, of which all can be forecast: an error now, not after the training."""
    series = read_series(table, settings)
    latest = max(series, key=lambda one: one.times[-1])
    times_ahead(latest.name, latest.times[-1], settings.horizon, settings, table)
    return series


def _times(column: "pd.Series[Any]", name: str) -> pd.Index:
    if pd.api.types.is_integer_dtype(column.dtype):
        return pd.Index(column.to_numpy("int64"))
    if pd.api.types.is_float_dtype(column.dtype):  # pandas would take them for nanoseconds
        raise TableError(f"column {name!r} must hold timestamps or whole numbers, it holds {column.dtype}")
    return as_timestamps(column, name)


def _first_times(table: pd.DataFrame, id_column: str, time_column: str, at_most: int) -> list[pd.Index]:
    """The times of the first series."""
    column = table[time_column]
    if column.isna().any():
        raise TableError(f"column {time_column!r} is empty in row {int(column.isna().to_numpy().argmax())}")
    times = _times(column, time_column)
    names = name_array(read_names(table[id_column], id_column))
    groups = pd.Series(range(len(table))).groupby(names, sort=False)
    first = (rows for (_, rows), _ in zip(groups, range(at_most), strict=False))
    return [times[rows.to_numpy()].unique().sort_values() for rows in first]


def _rule(offset: Any) -> str:
    """The kind of a step, such as MS, without its anchor and multiple."""
    return str(offset.rule_code).split("-")[0]


def _seasons(freq: Any, n_rows: int, series: Sequence[Series]) -> tuple[int, ...]:
    """Seasons that the frequency suggests, if a series of middle length has two of them."""
    if not isinstance(freq, str):
        return _seen_seasons(series)
    found: tuple[int, ...] = ()
    offset = offset_of(freq)
    name = _rule(offset)
    cycles = {"B": (5,), "C": (5,), "W": (52,), "MS": (12,), "ME": (12,), "BMS": (12,), "BME": (12,)}
    cycles |= {"QS": (4,), "QE": (4,), "BQS": (4,), "BQE": (4,), "D": (7,)}
    if name in cycles:
        found = tuple(season // offset.n for season in cycles[name] if season % offset.n == 0)
    elif isinstance(offset, pd.tseries.offsets.Tick):
        step = pd.Timedelta(offset)
        cycle_lengths = [pd.Timedelta(days=1), pd.Timedelta(days=7)]
        if step < pd.Timedelta(minutes=1):
            cycle_lengths = [pd.Timedelta(minutes=1), pd.Timedelta(hours=1), *cycle_lengths]
        found = tuple(int(cycle / step) for cycle in cycle_lengths if cycle % step == pd.Timedelta(0))
    return tuple(season for season in found if 2 <= season <= min(LONGEST_SEASON, n_rows // 2))[:2]


def _seen_seasons(series: Sequence[Series]) -> tuple[int, ...]:
    """The season, if there is one, by which a value of one season ago is much closer than the last value."""
    counts = processes.gather(len(series))
    before, every = sum(counts[: processes.rank()]), max(1, sum(counts) // 200)
    own = [one.values[-2000:, 0] for one in series[-before % every :: every]]
    columns = list(chain(*processes.gather(own)))
    best, season = 0.8, 0
    for candidate in POSSIBLE_SEASONS:
        long = [column for column in columns if len(column) >= 3 * candidate]
        if 2 * len(long) < len(columns):
            continue
        ratios = np.array([_lag_error(column, candidate) / max(_lag_error(column, 1), 1e-300) for column in long])
        ratio = float(np.nanmedian(ratios)) if np.isfinite(ratios).any() else np.inf
        if ratio < best:
            best, season = ratio, candidate
    return (season,) if season else ()


def _lag_error(column: Float[np.ndarray, "_"], lag: int) -> float:
    errors = np.abs(column[lag:] - column[:-lag])
    return float(np.nanmean(errors)) if (~np.isnan(errors)).any() else np.nan


def _calendar(freq: Any, n_rows: int) -> tuple[str, ...]:
    if not isinstance(freq, str):
        return ()
    offset = offset_of(freq)
    name = _rule(offset)
    if name in ("MS", "ME", "BMS", "BME", "QS", "QE", "BQS", "BQE"):
        return ("month",)
    if name == "W":
        return ("day_of_year",) if n_rows >= 104 else ()
    if name in ("B", "C", "D"):
        yearly = ("day_of_year",) if n_rows >= 2 * 365 else ()
        return ("weekday", *yearly)
    if isinstance(offset, pd.tseries.offsets.Tick):
        return ("hour", "weekday")
    return ()
