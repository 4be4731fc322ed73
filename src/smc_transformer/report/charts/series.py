"""Pictures of forecasts and of surprises: a panel for each series and target."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smc_transformer.support.remark import remark

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from smc_transformer.forecaster import Forecast
    from smc_transformer.forecaster.settings import Settings

MOST_PANELS = 12
"""Panels of a picture: more cannot be read."""


def fan_charts(forecast: "Forecast", history: Any, names: Sequence[Any], levels: "Sequence[int | float]") -> "Figure":
    """Forecasts after the end of their histories.

    Args:
        forecast: the forecast.
        history: a table of what came before, or None.
        names: the series to draw.
        levels: percentages of the bands.
    """
    if history is not None:
        history = history.groupby(forecast.id_column, sort=False).tail(5 * forecast.horizon)
    wanted = [(name, target) for name in names for target in forecast.targets]
    figure, panels = panels_for(wanted)
    for axes, (name, target) in panels:
        forecast.plot(axes, series=name, target=target, history=history, level=levels)
        axes.legend().remove()  # one for all of them is enough
        panel_title(axes, f"{name}: {target}")
    shared_legend(figure, panels[0][0])
    return figure


def surprise_charts(
    surprise: "pd.DataFrame", settings: "Settings", names: Sequence[Any], level: int | float
) -> "Figure":
    """Observed values, those outside the intervals of a level marked.

    Args:
        surprise: the answer of `Forecaster.score` or `update`.
        settings: of the forecaster.
        names: the series to draw.
        level: percentage.
    """
    from smc_transformer.report.charts.particles import INK, RED
    from smc_transformer.report.charts.style import quiet_frame

    wanted = [(name, target) for name in names for target in settings.targets]
    figure, panels = panels_for(wanted)
    for axes, (name, target) in panels:
        rows = surprise[(surprise[settings.id_column] == name) & (surprise["target"] == target)]
        found = rows[rows[f"outside-{level:g}"]]
        times = rows[settings.time_column]
        axes.plot(times, rows["value"], color=INK, linewidth=0.9, label="observed")
        style: dict[str, Any] = {"color": RED, "markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.6}
        axes.plot(found[settings.time_column], found["value"], "o", label=f"outside its {level:g} % interval", **style)
        quiet_frame(axes, times)
        panel_title(axes, f"{name}: {target}", f"{len(found)} of {len(rows)} values marked")
    shared_legend(figure, panels[0][0])
    return figure


def panel_title(axes: "Axes", title: str, remark: str = "") -> None:
    """What a panel shows, and a remark at its right end."""
    from smc_transformer.report.charts.particles import INK

    axes.set_title(title, loc="left", color=INK, fontweight="bold", fontsize="medium", pad=6)
    axes.set_title(remark, loc="right", color=INK, fontsize="small", pad=6)


def shared_legend(figure: "Figure", axes: "Axes") -> None:
    """One legend for panels that are all alike, above them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=max(1, len(labels)), frameon=False, fontsize="small")


def panels_for(wanted: list[tuple[Any, str]]) -> "tuple[Figure, list[tuple[Axes, tuple[Any, str]]]]":
    """A figure with axes for as many as can be read."""
    from matplotlib.figure import Figure

    shown = wanted[:MOST_PANELS]
    if len(wanted) > len(shown):
        remark(f"the picture shows {len(shown)} of {len(wanted)} panels: choose by --series")
    n_columns = 1 if len(shown) < 4 else 2
    n_rows = -(-len(shown) // n_columns)
    figure = Figure(figsize=(8 * n_columns, 0.4 + 2.8 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).flatten().tolist()
    for empty in axes[len(shown) :]:
        empty.set_axis_off()
    return figure, list(zip(axes, shown, strict=False))
