"""The picture: each method's WQL over that of a seasonal naive forecast, by panel."""

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from benchmarks.panels.methods import METHODS
from benchmarks.panels.panels import PANELS
from benchmarks.panels.summary import Row, geometric_means
from smc_transformer.charts.style import BLUE, GREY, INK, PINK, RED, legend_above, two_sides

LOOKS: dict[str, dict] = {  # ours is the largest, and below the others: where points meet, all can be seen
    METHODS["smc"]: {"marker": "o", "color": BLUE, "s": 90, "zorder": 2},
    METHODS["auto_ets"]: {"marker": "s", "color": RED, "s": 34, "zorder": 3},
    METHODS["nhits"]: {"marker": "^", "color": PINK, "s": 44, "zorder": 3},
    "Chronos-Bolt-base": {"marker": "D", "facecolor": "white", "edgecolor": INK, "s": 32, "zorder": 3},
    "Chronos-T5-large": {"marker": "o", "facecolor": "white", "edgecolor": INK, "s": 34, "zorder": 3},
}
TICKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
MEAN = "geometric mean"


def draw_ratios(rows: list[Row], path: Path) -> None:
    """A line for each panel and one for the geometric means; left of 1 is better than seasonal naive."""
    known = [row for row in rows if row.method.partition(",")[0] in LOOKS]
    means = geometric_means(known)
    names = [*PANELS, MEAN]
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.axhspan(len(PANELS) - 0.5, len(PANELS) + 0.5, color=GREY, alpha=0.25, linewidth=0)
    for place in range(len(names)):
        axes.axhline(place, color=GREY, alpha=0.6, linewidth=0.6, zorder=0)
    axes.axvline(1, color=INK, linewidth=1, zorder=1)
    methods = sorted(means, key=lambda method: list(LOOKS).index(method.partition(",")[0]))
    for method in methods:
        points = {row.panel: row.ratio for row in known if row.method == method}
        if len(points) == len(PANELS):  # a mean over fewer panels cannot be compared
            points[MEAN] = means[method][0]
        places = [names.index(name) for name in points]
        axes.scatter(list(points.values()), places, label=method, linewidth=1.1, **LOOKS[method.partition(",")[0]])
    two_sides(axes)
    axes.set_xscale("log")
    ratios = [row.ratio for row in known]
    axes.set_xlim(min(0.9 * min(ratios), 0.9), max(1.1 * max(ratios), 1.1))
    shown = [tick for tick in TICKS if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in shown]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(
        "WQL / WQL of a seasonal naive forecast (1), logarithmic; lower is better", color=INK, fontsize="small"
    )
    legend_above(axes, "Seven public panels")
    figure.savefig(path, dpi=130)
