"""One-step predictive distributions on a test sequence of Model I, against the true 95 % band."""

from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from rich.console import Console

from smct_paper.baselines import Method
from smct_paper.datasets import SYNTHETIC, Windows, load_windows
from smct_paper.experiments.grid import FOLDS, SYNTHETIC_CONFIGS, Cell
from smct_paper.experiments.methods import build_method, settings_of
from smct_paper.experiments.profiles import QUICK
from smct_paper.experiments.report.figures.cache import rounded
from smct_paper.experiments.report.figures.style import INK, SMC, TRUTH, colour, explain, panels, tidy
from smct_paper.experiments.report.names import BASELINES, method_title
from smct_paper.experiments.report.results import MethodKey

DATASET, FOLD, SEQUENCE = "model1", 0, 0
METHODS = (*(MethodKey("smc_transformer", config) for config in SYNTHETIC_CONFIGS), *BASELINES)
CELLS = {method: Cell(DATASET, FOLDS, *method, FOLD) for method in METHODS}
N_COLUMNS = 4


def settings_of_bands() -> dict[str, Any]:
    """With what the methods of the figure are trained."""
    return {method_title(key): settings_of(cell, QUICK) for key, cell in CELLS.items()}


def train_and_predict(console: Console) -> dict[str, Any]:
    """Train every method as the profile `quick` does, on one fold, and keep their bands on one test sequence."""
    data = load_windows(DATASET, split=FOLDS, fold=FOLD)
    methods = {}
    for key, cell in CELLS.items():
        console.print(f"figure of predictive distributions: training {method_title(key)}")
        methods[key] = build_method(cell, QUICK)
        methods[key].fit(data, seed=FOLD)
    return predictive_bands(data, methods)


@torch.no_grad()
def predictive_bands(data: Windows, methods: Mapping[MethodKey, Method], sequence: int = SEQUENCE) -> dict[str, Any]:
    """Means and 95 % bands of trained methods on one test sequence, and the true band, as JSON can hold them."""
    x = data.test[sequence : sequence + 1]

    def ends(band: tuple[torch.Tensor, torch.Tensor] | None) -> dict[str, Any]:
        lower, upper = (None, None) if band is None else (rounded(end[0, :, 0]) for end in band)
        return {"lower": lower, "upper": upper}

    bands = []
    for key, method in methods.items():
        distribution = method.one_step(x, 0)
        mean = rounded(distribution.mean[0, :, 0])
        bands.append({**key._asdict(), "mean": mean, **ends(distribution.interval(0.95))})
    truth = ends(SYNTHETIC[data.name].predictive(x).interval(0.95))
    return {"dataset": data.name, "observed": rounded(x[0, 1:, 0]), "true": truth, "methods": bands}


def predictive_figure(bands: dict[str, Any]) -> Figure:
    """A small panel for each method, all on the same axes."""
    methods = bands["methods"]
    figure, every = panels(len(methods), N_COLUMNS, 3.0, 2.1, sharex=True, sharey=True)
    for axes, method in zip(every, methods, strict=False):
        _draw(axes, bands, method)
    for axes in every[-N_COLUMNS:]:
        axes.set_xlabel("time step", fontsize=8)
    explain(
        figure,
        Line2D([], [], color=TRUTH, linestyle="--", linewidth=1, label="true 95 % band"),
        Patch(color=SMC, alpha=0.3, linewidth=0, label="predicted 95 % band (in the method's colour)"),
        Line2D([], [], color=SMC, linewidth=1.4, label="predicted mean"),
        Line2D([], [], color=INK, marker="o", markersize=2, linestyle="", label="observed"),
    )
    return figure


def _draw(axes: Axes, bands: dict[str, Any], method: dict[str, Any]) -> None:
    tidy(axes)
    key = MethodKey(method["model"], method["config"])
    ink = colour(key)
    steps = range(1, len(bands["observed"]) + 1)
    if method["lower"] is not None:
        axes.fill_between(steps, method["lower"], method["upper"], color=ink, alpha=0.3, linewidth=0)
    axes.plot(steps, method["mean"], color=ink, linewidth=1.4)
    for end in bands["true"].values():
        axes.plot(steps, end, color=TRUTH, linestyle="--", linewidth=1)
    axes.plot(steps, bands["observed"], "o", color=INK, markersize=2)
    name = method_title(key) + ("" if method["lower"] is not None else " (a point)")
    axes.set_title(name, fontsize=9, color=ink, loc="left")
