"""PICP at each step of the horizon: whether the coverage holds further ahead."""

import math
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.figures import style
from smct_paper.experiments.report.figures.style import FAINT, SHOWN
from smct_paper.experiments.report.names import dataset_title
from smct_paper.experiments.report.results import LEVEL, MethodKey, Results

HEIGHT = 2.9
"""Of a panel and what is around it, in inches."""


def picp_per_step(results: Results, dataset: str, split: str, method: MethodKey) -> list[float]:
    """The multistep PICP at each step, averaged over seeds; empty where there is none."""
    rows = results.select(dataset=dataset, split=split, task="multistep", method=method)
    curves = [row.per_step["picp"] for row in rows if row.per_step.get("picp")]
    steps = [[value for value in values if value is not None] for values in zip(*curves, strict=True)]
    return [fmean(seen) if seen else math.nan for seen in steps]


def step_figure(results: Results, split: str) -> Figure | None:
    """A panel for each data set; None where nothing was run."""
    curves = {
        dataset: {method: curve for method in SHOWN if (curve := picp_per_step(results, dataset, split, method))}
        for dataset in REAL_DATASETS
    }
    shown = [dataset for dataset in REAL_DATASETS if curves[dataset]]
    if not shown:
        return None
    figure, panels = style.panels(len(shown), 3, 3.9, HEIGHT)
    for axes, dataset in zip(panels, shown, strict=False):
        _draw(axes, curves[dataset])
        ends = {method: curve[-1] for method, curve in curves[dataset].items()}
        style.label_lines(axes, ends, float(len(next(iter(curves[dataset].values())))), HEIGHT - 0.7)
        axes.set_title(dataset_title(dataset), fontsize=10, loc="left")
    return figure


def _draw(axes: Axes, curves: dict[MethodKey, list[float]]) -> None:
    style.tidy(axes)
    axes.axhline(LEVEL, color=FAINT, linewidth=1)
    axes.annotate("0.95", (1, LEVEL), xytext=(3, 2), textcoords="offset points", fontsize=7.5, color="#616e7c")
    for method, curve in reversed(curves.items()):  # the SMC Transformer on top
        axes.plot(range(1, len(curve) + 1), curve, **style.line(method), linewidth=1.6)
    lowest = min(min(curve) for curve in curves.values())
    axes.set_ylim(max(0.0, min(0.8, lowest) - 0.04), 1.02)
    axes.set_xlim(1, max(len(curve) for curve in curves.values()))
    axes.set_xlabel("step of the horizon", fontsize=8)
    axes.set_ylabel("PICP", fontsize=8)
