"""Backtests: forecasts from past cutoffs, beside the observed values, and their scores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from smc_transformer.forecaster.columns import OBSERVED, check_alias
from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.forecast import Number
from smc_transformer.forecaster.names import as_one_series, with_names
from smc_transformer.forecaster.periods import as_shown
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, Series, TableError, as_pandas, as_timestamps, read_series, with_times
from smc_transformer.scores import energy_score, joined, target_scores, where_observed

LEVEL = 95
"""Percentage of the interval that picp, mpiw and winkler are about."""


@dataclass(frozen=True)
class Backtest:
    """Forecasts from past cutoffs and how good they were.

    Attributes:
        forecasts: a row for each series, cutoff (the last row that was known) and time, in columns such as
            y-observed, y (the mean), y-lo-95, y-hi-95, as `predict` calls them, y-crps and y-pit (for whole
            numbers drawn between P(Y < y) and P(Y <= y), so that it is uniform for calibrated forecasts of any
            distribution). With an alias: y (the observed value), SMC, SMC-lo-95, SMC-hi-95, as `predict` with this
            alias calls them, and no scores.
        metrics: a row for each target: mse of the mean, crps, picp, mpiw and winkler of the 95 % interval, and the
            energy score of whole paths (joint over steps and targets), all in the user's units and averaged over what
            was observed.
    """

    forecasts: pd.DataFrame
    metrics: pd.DataFrame


def run_backtest(
    settings: Settings,
    fitted: Fitted | None,
    fit: Callable[[pd.DataFrame], Fitted],
    df: Any,
    *,
    n_windows: int,
    step_size: int,
    refit: bool,
    horizon: int,
    levels: list[Number],
    rolling: int | None,
    n_paths: int,
    alias: str | None = None,
) -> Backtest:
    """See `Forecaster.backtest`; `fit` trains anew on a table."""
    zone_of, table = None if fitted is None else fitted.some_time, as_one_series(as_pandas(df), settings.id_column)
    if fitted is not None:
        table = with_names(as_pandas(df), settings.id_column, fitted.following.series)
    check_alias(alias, (settings.id_column, settings.time_column, "cutoff", *settings.targets))
    given = read_series(table, settings, zone_of=zone_of)
    table = with_times(table, settings.time_column, zone_of)  # for new fits
    most = horizon + step_size * (n_windows - 1)  # rows from the first cutoff on
    for series in given:
        if len(series) - most < 2:
            raise TableError(
                f"series {series.name!r} has {len(series)} rows: too few for {n_windows} windows of {horizon} steps, "
                f"{step_size} apart, after at least 2 rows of history"
            )
    counts = [most - step_size * number for number in range(n_windows)]
    cutoffs = [{series.name: series.times[len(series) - count - 1] for series in given} for count in counts]
    current = fitted
    if fitted is not None and any(time < fitted.trained_until.get(name, time) for name, time in cutoffs[0].items()):
        current = None  # it was trained on rows after the first cutoff
    answers = []
    for count, until in zip(counts, cutoffs, strict=True):
        if current is None or refit:
            current = fit(_rows_until(table, settings, until, rolling))
        answers.append(_forecast_at(current, given, count, horizon, levels, n_paths, alias))
    parts, scores = zip(*answers, strict=True)
    every = joined(scores)
    metrics = pd.DataFrame({"target": list(settings.targets)})
    for name in ("mse", "crps", "picp", "mpiw", "winkler"):
        metrics[name] = every[name].nanmean(dim=(0, 1)).tolist()
    metrics["energy_score"] = float(every["energy_score"].nanmean())
    return Backtest(pd.concat(parts, ignore_index=True), metrics)


def _rows_until(table: pd.DataFrame, settings: Settings, until: dict[Name, Any], rolling: int | None) -> pd.DataFrame:
    """The rows of each series up to its cutoff, or the last of these."""
    times = table[settings.time_column].reset_index(drop=True)
    if isinstance(settings.freq, str):
        times = pd.Series(as_timestamps(times, settings.time_column))
    last = pd.Series([until[name] for name in table[settings.id_column]])
    known = table[(times <= last).to_numpy()]
    return known if rolling is None else known.groupby(settings.id_column, sort=False, observed=True).tail(rolling)


def _forecast_at(
    fitted: Fitted,
    given: list[Series],
    count: int,
    horizon: int,
    levels: list[Number],
    n_paths: int,
    alias: str | None,
) -> tuple[pd.DataFrame, dict[str, Tensor]]:
    """The rows of one cutoff, and the scores of every series, step and target in them."""
    history = [series.rows(slice(0, len(series) - count)) for series in given]
    following, _ = fitted.follow(history)
    future = {series.name: series.rows(slice(len(series) - count, len(series) - count + horizon)) for series in given}
    forecast = fitted.forecast(following, future, n_paths)
    values = [future[name].values[:, : len(forecast.targets)] for name in forecast.names]
    observed = torch.from_numpy(np.stack(values))
    found = target_scores(forecast.distribution, observed, LEVEL / 100)
    streams = fitted.streams(forecast.names, "backtest")
    found["pit"] = where_observed(forecast.distribution.pit(observed, streams), observed)
    found["energy_score"] = energy_score(torch.from_numpy(forecast.paths), observed)
    intervals = forecast.interval_columns(levels)
    if alias is None:
        scores = {"-crps": found["crps"], "-pit": found["pit"]}
        answer = forecast.as_table({OBSERVED: observed, "": forecast.distribution.mean, **intervals, **scores})
    else:  # and nothing else, as every other column would be taken for a model
        named = forecast.as_table({"": forecast.distribution.mean, **intervals}, alias=alias)
        answer = forecast.as_table({"": observed}).join(named[named.columns[2:]])
    cutoffs = pd.Index([following.series[name].last_time for name in forecast.names])
    answer.insert(1, "cutoff", as_shown(cutoffs, fitted.settings.freq).repeat(horizon))
    return answer, found
