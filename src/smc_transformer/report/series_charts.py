"""Pictures of forecasts and of surprises: a panel for each series and target (needs matplotlib)."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from smc_transformer.charts.style import INK, RED, draw_observed, quiet_frame
from smc_transformer.forecaster import Forecast
from smc_transformer.forecaster.frequency import with_absent_times
from smc_transformer.forecaster.names import rows_called
from smc_transformer.forecaster.periods import on_axis
from smc_transformer.forecaster.settings import Settings
from smc_transformer.support.remark import remark

MOST_PANELS = 12
"""Panels of a picture: more cannot be read."""


def fan_charts(forecast: Forecast, history: Any, names: Sequence[Any], levels: Sequence[int | float]) -> Figure:
    """Forecasts of some series, with bands of the given percentages, after a table of what came before.

    Without one, after the last rows that the model keeps.
    """
    if history is not None:
        history = history.groupby(forecast.id_column, sort=False, observed=True).tail(5 * forecast.horizon)
    figure, panels = _panels(names, forecast.targets)
    for axes, name, target in panels:
        forecast.plot(axes, series=name, target=target, history=history, level=levels)
        axes.legend().remove()  # one for all of them is enough
        panel_title(axes, f"{name}: {target}")
    shared_legend(figure, panels[0][0])
    return figure


def surprise_charts(surprise: pd.DataFrame, settings: Settings, names: Sequence[Any], level: int | float) -> Figure:
    """Observed values of some series, those outside the intervals of a level (a percentage) marked.

    `surprise` is the answer of `Forecaster.score` or `update`.
    """
    figure, panels = _panels(names, settings.targets)
    surprise = on_axis(surprise, settings.time_column)
    for axes, name, target in panels:
        rows = rows_called(surprise[surprise["target"] == target], settings.id_column, name)
        found = rows[rows[f"outside-{level:g}"]]
        times = rows[settings.time_column]
        values = rows["value"].to_numpy(float)
        draw_observed(axes, *with_absent_times(pd.Index(times), values, settings.freq), width=0.9)
        style: dict[str, Any] = {"color": RED, "markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.6}
        axes.plot(found[settings.time_column], found["value"], "o", label=f"outside its {level:g} % interval", **style)
        quiet_frame(axes, times)
        panel_title(axes, f"{name}: {target}", f"{len(found)} of {len(rows)} values marked")
    shared_legend(figure, panels[0][0])
    return figure


def panel_title(axes: Axes, title: str, remark: str = "") -> None:
    """What a panel shows, and a remark at its right end."""
    axes.set_title(title, loc="left", color=INK, fontweight="bold", fontsize="medium", pad=6)
    axes.set_title(remark, loc="right", color=INK, fontsize="small", pad=6)


def shared_legend(figure: Any, axes: Axes) -> None:
    """One legend for the panels of a figure or a part of it, which are all alike, above them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=max(1, len(labels)), frameon=False, fontsize="small")


def first_panels(names: Sequence[Any], targets: Sequence[str], most: int, what: str) -> list[tuple[Any, str]]:
    """The series and targets that are shown; a remark if these are not all."""
    wanted = [(name, target) for name in names for target in targets]
    if len(wanted) > most:
        remark(f"the picture shows {what}{most} of {len(wanted)} panels: choose by --series")
    return wanted[:most]


def _panels(names: Sequence[Any], targets: Sequence[str]) -> tuple[Figure, list[tuple[Axes, Any, str]]]:
    """A figure with axes for as many series and targets as can be read."""
    shown = first_panels(names, targets, MOST_PANELS, "")
    n_columns = 1 if len(shown) < 4 else 2
    n_rows = -(-len(shown) // n_columns)
    figure = Figure(figsize=(8 * n_columns, 0.4 + 2.8 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).flatten().tolist()
    for empty in axes[len(shown) :]:
        empty.set_axis_off()
    return figure, [(one, *panel) for one, panel in zip(axes, shown, strict=False)]
