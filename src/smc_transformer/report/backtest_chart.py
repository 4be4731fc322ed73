"""The picture of a backtest: forecasts and observed values; below them, whether intervals held what they should."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from smc_transformer.charts.style import BLUE, GREY, INK, band_shades, draw_band, draw_observed, quiet_frame, two_sides
from smc_transformer.forecaster import Backtest
from smc_transformer.forecaster.frequency import with_absent_times
from smc_transformer.forecaster.names import rows_called
from smc_transformer.forecaster.periods import on_axis
from smc_transformer.forecaster.settings import Settings
from smc_transformer.report.page.backtest import backtest_pages, levels_of
from smc_transformer.report.page.data import BacktestPage
from smc_transformer.report.series_charts import first_panels, panel_title, shared_legend

MOST_PANELS = 4
"""Series and targets whose forecasts are drawn: more cannot be read."""
MOST_WINDOWS = 6
"""Forecasts in a panel, the last ones."""
COLOURS = ("#2166ac", "#b2182b", "#1b7837", "#762a83", "#e08214")
"""Of the targets, in order."""


def backtest_chart(backtest: Backtest, table: pd.DataFrame, settings: Settings, names: Sequence[Any]) -> Figure:
    """Forecasts over what came, of the named series; coverage of all levels, and of the intervals at each step."""
    shown = first_panels(names, settings.targets, MOST_PANELS, "forecasts of ")
    figure = Figure(figsize=(11, 3.6 + 2.6 * len(shown)), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[2.6 * len(shown), 3.6])
    above, below = parts
    panels = above.subplots(len(shown), 1, squeeze=False).flatten().tolist()
    for axes, (name, target) in zip(panels, shown, strict=True):
        _draw_forecasts(axes, backtest.forecasts, table, settings, name, target)
    shared_legend(above, panels[0])
    pages = dict(zip(settings.targets, backtest_pages(backtest, settings.targets, settings.id_column), strict=True))
    calibration, by_step = below.subplots(1, 2, width_ratios=[1, 1.6])
    _draw_calibration(calibration, pages)
    _draw_coverage_by_step(by_step, pages)
    return figure


def _draw_forecasts(
    axes: Axes, forecasts: pd.DataFrame, table: pd.DataFrame, settings: Settings, name: Any, target: str
) -> None:
    """The last windows of one series, over its values."""
    rows = on_axis(rows_called(forecasts, settings.id_column, name), settings.time_column, "cutoff")
    windows = _apart([window for _, window in rows.groupby("cutoff", sort=True)], settings.time_column)
    shades = band_shades(levels_of(forecasts, target))
    for number, window in enumerate(windows):
        times = window[settings.time_column]
        for percent, shade in shades.items():
            lower, upper = (window[f"{target}-{end}-{percent:g}"] for end in ("lo", "hi"))
            draw_band(axes, times, lower, upper, shade, None if number else f"{percent:g} %")
        marker = "o" if len(window) == 1 else None
        axes.plot(times, window[target], color=BLUE, marker=marker, label=None if number else "mean forecast")
        axes.axvline(window["cutoff"].iloc[0], color=GREY, linewidth=0.9, label=None if number else "forecast made")
    own = on_axis(rows_called(table, settings.id_column, name), settings.time_column)
    first, last = windows[0]["cutoff"].iloc[0], windows[-1][settings.time_column].iloc[-1]
    came = own[own[settings.time_column] <= last]
    n_before = 2 * len(windows[0])  # what led to the first forecast
    came = came.tail(n_before + int((came[settings.time_column] > first).sum()))
    values = came[target].to_numpy(float, na_value=float("nan"))
    draw_observed(axes, *with_absent_times(pd.Index(came[settings.time_column]), values, settings.freq))
    quiet_frame(axes, rows[settings.time_column])
    n_windows = rows["cutoff"].nunique()
    some = "" if len(windows) == n_windows else f"{len(windows)} of {n_windows} forecasts"
    panel_title(axes, f"{name}: {target}", some)


def _apart(windows: list[pd.DataFrame], time_column: str) -> list[pd.DataFrame]:
    """The last windows that do not overlap, so that each can be seen."""
    chosen: list[pd.DataFrame] = []
    for window in reversed(windows):
        if len(chosen) < MOST_WINDOWS and (not chosen or window[time_column].iloc[-1] <= chosen[-1]["cutoff"].iloc[0]):
            chosen.append(window)
    return chosen[::-1]


def _draw_calibration(axes: Axes, pages: dict[str, BacktestPage]) -> None:
    """Share of the values inside the central interval of every level, beside what it should be."""
    axes.plot([0, 100], [0, 100], color=GREY, linewidth=1.2, zorder=0)
    for (target, page), colour in zip(pages.items(), cycle(COLOURS), strict=False):
        levels = [100 * level for level in page.calibration_levels]
        shares = [float("nan") if share is None else 100 * share for share in page.calibration_coverage]
        axes.plot(levels, shares, color=colour, marker="o", markersize=3, label=target)
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    _finish(axes, "level of the interval, %")
    n_values = max(page.n_values for page in pages.values())
    panel_title(axes, "Calibration", f"{n_values} values")
    axes.text(0.97, 0.05, "below the line:\ntoo narrow", transform=axes.transAxes, ha="right", fontsize="x-small")
    axes.text(0.03, 0.95, "above:\ntoo wide", transform=axes.transAxes, va="top", fontsize="x-small")
    if len(pages) > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")


def _draw_coverage_by_step(axes: Axes, pages: dict[str, BacktestPage]) -> None:
    """Share of the values inside the intervals, by how far ahead they were."""
    styles = ("-", "--", ":", "-.")
    for (target, page), colour in zip(pages.items(), cycle(COLOURS), strict=False):
        for place, scores in enumerate(sorted(page.levels, key=lambda one: -one.level)):
            shares = [float("nan") if share is None else 100 * share for share in scores.picp_by_step]
            label = f"{scores.level:g} %" if len(pages) == 1 else f"{target}, {scores.level:g} %"
            style = styles[place % len(styles)]
            axes.plot(range(1, len(shares) + 1), shares, style, color=colour, marker="o", markersize=3, label=label)
            axes.axhline(scores.level, color=INK, linewidth=0.7, alpha=0.5, zorder=0)
    axes.set_ylim(0, 103)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(axes, "steps ahead")
    panel_title(axes, "Coverage by step", "thin lines: what it should be")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")


def _finish(axes: Axes, x_label: str) -> None:
    axes.set_xlabel(x_label, fontsize="small", color=INK)
    axes.set_ylabel("values inside, %", fontsize="small", color=INK)
    two_sides(axes)
    axes.grid(color=GREY, alpha=0.4, linewidth=0.6)
