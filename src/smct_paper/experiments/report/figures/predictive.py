"""One-step predictive distributions on a test sequence of Model I, against the true 95 % band."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from smct_paper.experiments.report.figures.cache import rounded
from smct_paper.experiments.report.figures.style import INK, SMC, TRUTH, colour, new_figure, tidy
from smct_paper.experiments.report.names import method_title
from smct_paper.experiments.report.results import MethodKey

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

    from smct_paper.baselines import Method
    from smct_paper.datasets import Windows

DATASET, FOLD, SEQUENCE = "model1", 0, 0
RATES = ("0.1", "0.2", "0.5")
METHODS = (
    *(MethodKey("smc_transformer", config) for config in ("paper-10", "paper-30", "best-10", "best-30")),
    MethodKey("lstm", "paper"),
    *(MethodKey(f"lstm_dropout_{rate}", "paper") for rate in RATES),
    MethodKey("transformer", "paper"),
    *(MethodKey(f"transformer_dropout_{rate}", "paper") for rate in RATES),
    MethodKey("bayesian_lstm_3", "paper"),
    MethodKey("bayesian_lstm_10", "paper"),
    MethodKey("naive", "default"),
    MethodKey("autoregression", "default"),
)
N_COLUMNS = 4


def settings_of_bands() -> dict[str, Any]:
    """With what the methods of the figure are trained."""
    from smct_paper.experiments.grid import FOLDS, Cell
    from smct_paper.experiments.methods import settings_of
    from smct_paper.experiments.profiles import QUICK

    return {method_title(key): settings_of(Cell(DATASET, FOLDS, key.model, key.config, FOLD), QUICK) for key in METHODS}


def train_and_predict(console: "Console") -> dict[str, Any]:
    """Train every method as the profile `quick` does, on one fold, and keep their bands on one test sequence."""
    from smct_paper.datasets import load_windows
    from smct_paper.experiments.grid import FOLDS, Cell
    from smct_paper.experiments.methods import build_method
    from smct_paper.experiments.profiles import QUICK

    data = load_windows(DATASET, split=FOLDS, fold=FOLD)
    methods = {}
    for key in METHODS:
        console.print(f"figure of predictive distributions: training {method_title(key)}")
        method = build_method(Cell(DATASET, FOLDS, key.model, key.config, FOLD), QUICK)
        method.fit(data, seed=FOLD)
        methods[key] = method
    return predictive_bands(data, methods)


def predictive_bands(
    data: "Windows", methods: Mapping[MethodKey, "Method"], sequence: int = SEQUENCE
) -> dict[str, Any]:
    """Means and 95 % bands of trained methods on one test sequence, and the true band, as JSON can hold them."""
    from smct_paper.datasets import SYNTHETIC

    x = data.test[sequence : sequence + 1]
    lower, upper = SYNTHETIC[data.name].predictive(x).interval(0.95)
    content: dict[str, Any] = {
        "dataset": data.name,
        "observed": rounded(x[0, 1:, 0]),
        "true": {"lower": rounded(lower[0, :, 0]), "upper": rounded(upper[0, :, 0])},
        "methods": [],
    }
    for key, method in methods.items():
        with torch.no_grad():
            distribution = method.one_step(x, 0)
        band = distribution.interval(0.95)
        content["methods"].append(
            {
                "model": key.model,
                "config": key.config,
                "mean": rounded(distribution.mean[0, :, 0]),
                "lower": None if band is None else rounded(band[0][0, :, 0]),
                "upper": None if band is None else rounded(band[1][0, :, 0]),
            }
        )
    return content


def predictive_figure(bands: dict[str, Any]) -> "Figure":
    """A small panel for each method, all on the same axes."""
    methods = bands["methods"]
    n_columns = min(N_COLUMNS, len(methods))
    n_rows = -(-len(methods) // n_columns)
    figure = new_figure(3.0 * n_columns, 2.1 * n_rows)
    panels = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True).flatten()
    for axes, method in zip(panels, methods, strict=False):
        _draw(axes, bands, method)
    for axes in panels[len(methods) :]:
        axes.set_visible(False)
    for axes in panels[-n_columns:]:
        axes.set_xlabel("time step", fontsize=8)
    _explain(figure)
    return figure


def _draw(axes: "Axes", bands: dict[str, Any], method: dict[str, Any]) -> None:
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


def _explain(figure: "Figure") -> None:
    """What the marks are, once for all panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks = [
        Line2D([], [], color=TRUTH, linestyle="--", linewidth=1, label="true 95 % band"),
        Patch(color=SMC, alpha=0.3, linewidth=0, label="predicted 95 % band (in the method's colour)"),
        Line2D([], [], color=SMC, linewidth=1.4, label="predicted mean"),
        Line2D([], [], color=INK, marker="o", markersize=2, linestyle="", label="observed"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=8)
