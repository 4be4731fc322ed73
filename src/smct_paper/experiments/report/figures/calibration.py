"""PIT histograms and calibration curves."""

from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from smct_paper.experiments.report.figures import style
from smct_paper.experiments.report.figures.style import FAINT, INK, SHOWN, colour, short_title, tidy
from smct_paper.experiments.report.names import BEST, PAPER, dataset_title
from smct_paper.experiments.report.results import MethodKey, Results

SYNTHETIC_SHOWN = [key._replace(config=f"{key.config}-30") if key in (BEST, PAPER) else key for key in SHOWN]
HEIGHT = 1.7
"""Height of a row, in inches."""
CEILING = 4.0
"""Densities above this are cut off (and said), so that the shapes of the others can be seen."""


def pit_density(results: Results, dataset: str, split: str, task: str, method: MethodKey) -> list[float]:
    """The histogram of the probability integral transform over all seeds: 1 everywhere if calibrated."""
    rows = results.select(dataset=dataset, split=split, task=task, method=method)
    counts = [sum(values) for values in zip(*(row.pit for row in rows if row.pit), strict=True)]
    total = sum(counts)
    return [count * len(counts) / total for count in counts] if total else []


def coverage_curve(
    results: Results, dataset: str, split: str, task: str, method: MethodKey
) -> tuple[list[float], list[float]]:
    """Levels of central intervals and the shares they cover, averaged over seeds."""
    rows = results.select(dataset=dataset, split=split, task=task, method=method)
    curves = [row.coverage for row in rows if row.coverage]
    if not curves:
        return [], []
    return curves[0]["levels"], [fmean(shares) for shares in zip(*(curve["shares"] for curve in curves), strict=True)]


def calibration_figure(results: Results, datasets: tuple[str, ...], split: str, task: str) -> Figure | None:
    """A row for each data set: a histogram for each method, and their calibration curves; None without results."""
    candidates = SYNTHETIC_SHOWN if split == "folds" else SHOWN
    densities = {
        (dataset, method): density
        for dataset in datasets
        for method in candidates
        if (density := pit_density(results, dataset, split, task, method))
    }
    shown = [dataset for dataset in datasets if any(key[0] == dataset for key in densities)]
    methods = [method for method in candidates if any(key[1] == method for key in densities)]
    if not shown:
        return None
    figure = style.new_figure(1.35 * len(methods) + 3.6, HEIGHT * len(shown) + 0.4)
    grid = figure.subplots(len(shown), len(methods) + 1, squeeze=False, width_ratios=[*(1.0 for _ in methods), 1.5])
    for row, dataset in enumerate(shown):
        for column, method in enumerate(methods):
            axes = grid[row, column]
            _draw_histogram(axes, densities.get((dataset, method), []), colour(method))
            if row == 0:
                axes.set_title(short_title(method), fontsize=8.5, color=colour(method))
            if row == len(shown) - 1:
                axes.set_xlabel("PIT", fontsize=8)
        grid[row, 0].set_ylabel(dataset_title(dataset), fontsize=9.5)
        curves = {method: coverage_curve(results, dataset, split, task, method) for method in methods}
        _draw_curves(grid[row, -1], curves)
        ends = {method: shares[-1] for method, (_, shares) in curves.items() if shares}
        style.label_lines(grid[row, -1], ends, 0.95, HEIGHT - 0.3, size=6.5)
    for axes in grid[:, 1:-1].flatten():
        axes.tick_params(labelleft=False)
    for axes in grid[:-1].flatten():
        axes.tick_params(labelbottom=False)
    grid[0, -1].set_title("share inside central intervals", fontsize=8.5, color=INK)
    grid[-1, -1].set_xlabel("level of the interval", fontsize=8)
    return figure


def _draw_histogram(axes: Axes, density: list[float], ink: str) -> None:
    tidy(axes)
    axes.set(xlim=(0, 1), ylim=(0, CEILING))
    axes.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    axes.set_yticks([0, 1, 2, 3, 4], ["", "1", "", "", ""])
    if not density:
        axes.annotate("not run", (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize=8, color=FAINT)
        return
    width = 1 / len(density)
    edges = [index * width for index in range(len(density))]
    axes.bar(edges, density, width, align="edge", color=ink, alpha=0.75, linewidth=0)
    axes.axhline(1, color=INK, linewidth=0.8, linestyle=":")
    for index, value in enumerate(density):
        if value > CEILING:
            side, shift = ("left", 7) if index < len(density) / 2 else ("right", -7)
            top = ((index + 0.5) * width, CEILING)
            label = axes.annotate(f"{value:.0f}", top, (shift, -2), textcoords="offset points")
            label.set(ha=side, va="top", fontsize=7, color=INK)


def _draw_curves(axes: Axes, curves: dict[MethodKey, tuple[list[float], list[float]]]) -> None:
    tidy(axes)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    for method, (levels, shares) in reversed(curves.items()):
        axes.plot(levels, shares, **style.line(method), linewidth=1.4)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
