"""Asking a forecaster for all that the page shows."""

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import numpy as np
import torch

from smc_transformer._version import __version__
from smc_transformer.forecaster import Backtest, Forecast, Forecaster
from smc_transformer.forecaster.table import Name, Series
from smc_transformer.report.page.attention import series_attention
from smc_transformer.report.page.backtest import backtest_pages
from smc_transformer.report.page.data import QUANTILES, ReportPage, SeriesPage, TargetPage, plain_list, plain_times
from smc_transformer.report.page.health import series_health
from smc_transformer.support.checks import check_count
from smc_transformer.support.randomness import as_generator

BACKTEST_LEVELS = (50, 80, 95)
"""Percentages of the intervals that a backtest made for the page is scored by."""


def collect_page(
    forecaster: Forecaster,
    df: Any = None,
    *,
    backtest: Backtest | int = 0,
    h: int | None = None,
    future: Any = None,
    history: int | None = None,
    n_paths: int = 1000,
    n_shown: int = 20,
    seed: int | None = None,
    title: str = "Forecast",
    progress: bool = True,
) -> ReportPage:
    """All numbers of the page.

    Args:
        forecaster: which has been fitted.
        df: histories to forecast from, drawn before the forecasts; None: the states as last updated, after the last
            rows that the model keeps, without particle health.
        backtest: how many forecasts of each series to compare with the end of `df` (a forecaster that has been fitted
            on that end trains anew); or a backtest made before; 0: none.
        h: steps ahead; None: the horizon.
        future: the future inputs of the steps ahead; needed if there are any.
        history: rows of history to show; None: five horizons, and the input size at least.
        n_paths: sampled futures behind the numbers.
        n_shown: how many of them the page can show.
        seed: of the paths; None as in `Forecaster.predict`.
        title: heading of the page.
        progress: show progress bars of trainings where there is a terminal.
    """
    n_shown = check_count(n_shown, "n_shown", at_least=0)
    settings, fitted = forecaster.settings, forecaster.fitted
    forecast = forecaster.forecast(df, h, future=future, n_paths=n_paths, seed=seed)
    given = {} if df is None else {series.name: series for series in forecaster.read(df)}
    n_rows = max(5 * forecast.horizon, settings.input_size) if history is None else check_count(history, "history")
    drawn = given or {
        name: Series(name, past.times, past.values, np.empty((len(past.times), 0)))
        for name, past in zip(forecast.names, forecast.past or (), strict=True)
        if len(past.times)
    }
    shown = {name: series.rows(slice(-n_rows, None)) for name, series in drawn.items()}
    # With the seed of the forecast: these are its particles.
    following = fitted.follow(list(given.values()), seed)[0] if given else fitted.following
    generator = as_generator(settings.seed if seed is None else seed)
    health = series_health(forecaster, list(given.values()), n_rows, generator)
    ahead = forecaster.read_future(dict(zip(forecast.names, forecast.times, strict=True)), future)
    of_targets, pages = _targets(forecaster, forecast, shown, n_shown), []
    for name, times, targets in zip(forecast.names, forecast.times, of_targets, strict=True):
        (next_step,) = fitted.panel.ahead([ahead[name].rows(slice(1))], [following.series[name].view])
        known = torch.from_numpy(next_step.known).float()
        attention = series_attention(forecaster, following, name, known, generator)
        history_times = plain_times(shown[name].times) if name in shown else []
        pages.append(SeriesPage(str(name), history_times, plain_times(times), targets, health.get(name), attention))
    if isinstance(backtest, int) and backtest != 0:
        if df is None:
            raise ValueError("a backtest needs the table that it compares forecasts with: give it as df")
        h = forecast.horizon
        backtest = forecaster.backtest(df, backtest, h=h, level=BACKTEST_LEVELS, n_paths=n_paths, progress=progress)
    return ReportPage(
        title=title,
        created=datetime.now(timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
        targets=list(settings.targets),
        series=pages,
        backtest=[] if isinstance(backtest, int) else backtest_pages(backtest, settings.targets, settings.id_column),
        settings=settings_rows(forecaster),
        time_label=settings.time_column,
    )


def settings_rows(forecaster: Forecaster) -> list[tuple[str, str]]:
    """The settings of the forecaster, then those of its model, as text."""
    model = forecaster.model
    asked = {name: value for name, value in forecaster.settings.to_dict().items() if name != "config"}
    rows = {name.replace("_", " "): _text(value) for name, value in asked.items()}
    fitted = forecaster.fitted
    rows |= {f"chosen from the table: {name.replace('_', ' ')}": text for name, text in fitted.chosen.items()}
    described = fitted.panel.describe([one.view for one in fitted.following.series.values()])
    if described is not None:
        rows["local view"] = described
    for part in (model.config, model.inference, model.learning):
        rows |= {f"model: {name.replace('_', ' ')}": _text(value) for name, value in part.to_dict().items()}
    rows["model: parameters"] = f"{sum(parameter.numel() for parameter in model.parameters()):,}"
    rows["made with"] = f"smc-transformer {__version__}"
    return list(rows.items())


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return json.dumps(value) if value else "defaults"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _targets(
    forecaster: Forecaster, forecast: Forecast, shown: Mapping[Name, Series], n_shown: int
) -> list[list[TargetPage]]:
    """What the forecast says about each target, series after series."""
    mean, quantiles = forecast.distribution.mean, [forecast.distribution.quantile(level) for level in QUANTILES]
    kinds = forecaster.settings.kinds()
    return [
        [
            TargetPage(
                history=plain_list(shown[series].values[:, place]) if series in shown else [],
                mean=plain_list(mean[number, :, place]),
                quantiles=[plain_list(values[number, :, place]) for values in quantiles],
                paths=[plain_list(path) for path in forecast.paths[number, :n_shown, :, place]],
                between=plain_list(forecast.exact_parts.between[number, :, place]),
                within=plain_list(forecast.exact_parts.within[number, :, place]),
                variance_of=f"log(1 + {name})" if kinds[place] == "log1p" else name,
            )
            for place, name in enumerate(forecast.targets)
        ]
        for number, series in enumerate(forecast.names)
    ]
