"""A panel from its table to forecasts, scores, a picture, a saved model and the report page; nothing set but a horizon.

The last year of every series is held out of the fit. It is forecast by the model and by a seasonal naive forecast, in
units of each series' own mean, so that all series count alike.
"""

from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

from smc_transformer.empirical import Samples
from smc_transformer.forecaster import Forecast, Forecaster
from smc_transformer.scores import target_scores
from smct_paper.demo.seasonal_naive import seasonal_naive
from smct_paper.demo.simulated_panel import KINDS, simulated_panel

HORIZON = SEASON = 12
N_PATHS = 1000
COLUMNS = {"crps": "CRPS", "covered_80": "in 80 %", "covered_95": "in 95 %", "width_95": "width of 95 %"}
SHOWN_YEARS = 4
"""In the picture, before the forecast."""
SHOWN = ("01", "05")
"""Numbers of the series of each kind that the picture has; the second has a gap."""

Rows = Float[np.ndarray, "series time"]
Draws = Float[np.ndarray, "series draw horizon"]


def run_panel(out: Path, *, steps: int | None = None, seed: int = 0, console: Console) -> dict[str, dict[str, float]]:
    """Fit, forecast, score, draw and report; returns the scores by method. Arguments as those of `run_demo`."""
    panel = simulated_panel(seed)
    panel.to_csv(out / "panel.csv", index=False)
    size = f"{len(panel)} rows of {panel['unique_id'].nunique()} monthly series"
    what = "trend, season, unequal lengths, some gaps"
    console.print(f"{out / 'panel.csv'}: {size}, [bold]simulated[/bold]: {what}. The last year is held out.")
    wide = panel.pivot(index="ds", columns="unique_id", values="y").asfreq("MS")
    known = panel[panel["ds"] <= wide.index[-HORIZON - 1]]

    training = {} if steps is None else {"likelihood_steps": steps, "forecast_steps": steps}
    started = monotonic()
    forecaster = Forecaster(horizon=HORIZON, seed=seed, training=training).fit(known)
    console.print(f"Forecaster(horizon={HORIZON}).fit(df): {monotonic() - started:.0f} seconds")
    console.print(_choices(forecaster))

    started = monotonic()
    forecast = forecaster.forecast(n_paths=N_PATHS)
    console.print(f"forecast: {N_PATHS} paths of each series in {monotonic() - started:.1f} seconds")
    values = wide[list(forecast.names)].to_numpy().T
    history, observed = values[:, :-HORIZON], values[:, -HORIZON:]
    random = np.random.default_rng(seed)
    naive = np.stack([seasonal_naive(_begun(row), SEASON, HORIZON, N_PATHS, random) for row in history])
    draws = {"SMC Transformer": forecast.paths[..., 0], "seasonal naive": naive}
    units = np.nanmean(np.abs(history), axis=1)
    scores = {name: _scores(own, observed, units) for name, own in draws.items()}
    console.print(_score_table(scores))
    _draw(forecast, panel, naive, out / "panel.png", console)

    forecaster.save(out / "model")
    console.print(
        f"model: {out / 'model'}, for example: smct predict {out / 'model'} --probability 'y > 500 at any step'"
    )
    _write_page(forecaster, panel, out / "report.html", console)
    return scores


def _begun(row: Float[np.ndarray, "time"]) -> Float[np.ndarray, "_"]:
    """From the first observed value on."""
    return row[np.flatnonzero(~np.isnan(row))[0] :]


def _choices(forecaster: Forecaster) -> Table:
    table = Table(title="What was chosen from the table")
    table.add_column("setting")
    table.add_column("choice")
    assert forecaster.report is not None  # it has been fitted
    for name, words in forecaster.report.chosen.items():
        table.add_row(name, words)
    return table


def _scores(draws: Draws, observed: Rows, units: Float[np.ndarray, "series"]) -> dict[str, float]:
    """Averages over all observed values of the held-out year, in units of each series."""
    samples = Samples(torch.from_numpy(draws / units[:, None, None]).double().unsqueeze(-1))
    x = torch.from_numpy(observed / units[:, None]).unsqueeze(-1)
    wide, narrow = target_scores(samples, x, 0.95), target_scores(samples, x, 0.8)
    found = {"crps": wide["crps"], "covered_80": narrow["picp"], "covered_95": wide["picp"], "width_95": wide["mpiw"]}
    return {name: float(values.nanmean()) for name, values in found.items()}


def _score_table(scores: dict[str, dict[str, float]]) -> Table:
    table = Table(title="The held-out year, in units of each series' mean")
    table.add_column("forecast")
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for name, row in scores.items():
        table.add_row(name, *(f"{row[metric]:.4f}" for metric in COLUMNS))
    return table


def _draw(forecast: Forecast, panel: pd.DataFrame, naive: Draws, path: Path, console: Console) -> None:
    try:
        figure = _picture(forecast, panel, np.median(naive, axis=1))
    except ImportError:
        console.print("no picture: it needs matplotlib (pip install 'smc-transformer[plots]')", markup=False)
        return
    figure.savefig(path, dpi=140)
    console.print(f"picture: {path}")


def _picture(forecast: Forecast, panel: pd.DataFrame, naive: Rows) -> Any:
    """Fan charts of some series of each kind, with what came and the seasonal naive forecast."""
    from matplotlib.figure import Figure

    from smc_transformer.charts.style import GREY, INK, RED
    from smc_transformer.report.series_charts import panel_title, shared_legend

    figure = Figure(figsize=(13, 9), layout="constrained")
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.1)
    axes = figure.subplots(len(KINDS), len(SHOWN), squeeze=False)
    for row, kind in zip(axes, KINDS, strict=True):
        for ax, chosen in zip(row, SHOWN, strict=True):
            name = f"{kind}-{chosen}"
            number = forecast.names.index(name)
            times = forecast.times[number]
            own = panel[panel["unique_id"] == name].set_index("ds").asfreq("MS").reset_index()
            own["unique_id"] = name
            past = own[own["ds"].between(times[0] - pd.DateOffset(years=SHOWN_YEARS), times[0], inclusive="left")]
            forecast.plot(ax, series=name, history=past)
            ax.get_legend().remove()
            ax.plot(times, naive[number], color=RED, linewidth=1, linestyle=(0, (4, 2)), label="seasonal naive")
            came = own[own["ds"].isin(times)]
            style = {"color": INK, "markeredgecolor": "white", "markeredgewidth": 0.7, "markersize": 5.5}
            ax.plot(came["ds"], came["y"], "o", label="held out", zorder=5, **style)
            ax.axvline(times[0] - pd.DateOffset(days=15), color=GREY, linewidth=0.8)
            panel_title(ax, name, f"{panel['unique_id'].eq(name).sum() - HORIZON} rows known")
    shared_legend(figure, axes[0, 0])
    return figure


def _write_page(forecaster: Forecaster, panel: pd.DataFrame, path: Path, console: Console) -> None:
    """The year after the last row, and the held-out year as a backtest, which needs no new training."""
    from smc_transformer.report.page import collect_page, write_page

    backtest = forecaster.backtest(panel, n_windows=1, level=(50, 80, 95), n_paths=N_PATHS)
    page = collect_page(forecaster, panel, backtest=backtest, n_paths=N_PATHS, title="Thirty simulated series")
    try:
        write_page(page, path)
    except ImportError as error:
        console.print(f"no report page: {error}", markup=False)
        return
    console.print(f"report page: {path}")
