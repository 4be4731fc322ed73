"""How many distinct particles represent a past step (the paper's degeneracy figure), and what smoothers change."""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from rich.console import Console
from torch import Tensor

from smc_transformer.config import SMCTransformerConfig
from smc_transformer.inference.smoothing import smooth
from smc_transformer.learning import Trainer
from smc_transformer.model import SMCTransformer
from smc_transformer.smc import unique_ancestors
from smc_transformer.support.randomness import as_generator
from smct_paper.datasets import load_windows
from smct_paper.experiments.report.figures.cache import rounded
from smct_paper.experiments.report.figures.style import FAINT, INK, SMC, explain, panels, tidy

N_PARTICLES, N_SEQUENCES, EPOCHS = 60, 48, 5
SMOOTHERS = (("genealogy", 1), ("fixed_lag", 5), ("backward", 2))
TITLES = {"genealogy": "genealogy (the paper)", "fixed_lag": "fixed lag", "backward": "backward"}


def settings_of_counts() -> dict[str, Any]:
    """With what the model of the figure is trained and smoothed."""
    numbers = {"particles": N_PARTICLES, "sequences": N_SEQUENCES, "epochs": EPOCHS, "smoothers": SMOOTHERS}
    return {**numbers, "model": SMCTransformerConfig().to_dict()}


def train_and_count(console: Console) -> dict[str, Any]:
    """Train a model of the default settings briefly on covid, each county scaled by itself; smooth test counties."""
    data = load_windows("covid", split="paper")
    console.print("figure of unique particles: training on covid")
    model = SMCTransformer(SMCTransformerConfig(), generator=0)
    Trainer(model, epochs=EPOCHS, seed=0, progress=False).fit(data.train, data.validation)
    test = data.test[:N_SEQUENCES]
    curves = []
    for smoother, lag in SMOOTHERS:
        counts = unique_counts(model, test, smoother, lag, N_PARTICLES).double()
        lower, upper = counts.quantile(torch.tensor([0.025, 0.975]).double(), dim=0)
        band = {"mean": counts.mean(dim=0), "lower": lower, "upper": upper}
        curves.append({"smoother": smoother, "lag": lag, **{name: rounded(band[name], 2) for name in band}})
    return {"dataset": "covid", "particles": N_PARTICLES, "sequences": len(test), "epochs": EPOCHS, "curves": curves}


def unique_counts(
    model: SMCTransformer, x: Float[Tensor, "batch time_plus_1 n_inputs"], smoother: str, lag: int, n_particles: int
) -> Int[Tensor, "batch time"]:
    """Different particles at each step on the trajectories of a smoother."""
    settings = replace(model.inference, n_particles=n_particles, smoother=smoother, smoothing_lag=lag)
    generator, counts = as_generator(0), []
    for part in x.split(8):  # backward simulation needs (trajectories x particles x steps) numbers for each sequence
        result = model.filter(part, generator=generator, inference=settings)
        counts.append(unique_ancestors(smooth(model, settings, part, result, None, generator).trajectories))
    return torch.cat(counts)


def unique_figure(content: dict[str, Any]) -> Figure:
    """A panel for each smoother, as their bands overlap; the genealogy's mean is repeated to compare with."""
    curves = content["curves"]
    figure, every = panels(len(curves), len(curves), 3.5, 3.1, sharey=True)
    for axes, curve in zip(every, curves, strict=True):
        _draw(axes, curve, curves[0] if curve is not curves[0] else None, content["particles"])
    every[0].set_ylabel(f"unique particles of {content['particles']}", fontsize=9)
    explain(
        figure,
        Line2D([], [], color=SMC, linewidth=1.8, label="mean"),
        Patch(color=SMC, alpha=0.18, linewidth=0, label="95 % of the counties"),
        Line2D([], [], color=INK, linewidth=1.1, linestyle="--", label="mean of the genealogy, to compare"),
    )
    return figure


def _draw(axes: Axes, curve: dict[str, Any], reference: dict[str, Any] | None, n_particles: int) -> None:
    tidy(axes)
    ages = range(-len(curve["mean"]), 0)
    axes.fill_between(ages, curve["lower"], curve["upper"], color=SMC, alpha=0.18, linewidth=0)
    axes.plot(ages, curve["mean"], color=SMC, linewidth=1.8)
    if reference is not None:
        axes.plot(ages, reference["mean"], color=INK, linewidth=1.1, linestyle="--")
    axes.axhline(n_particles, color=FAINT, linewidth=0.8, linestyle=":")
    lag = "" if curve["smoother"] == "genealogy" else f", lag {curve['lag']}"
    axes.set_title(f"{TITLES[curve['smoother']]}{lag}", fontsize=10, loc="left")
    axes.set_xlabel("past time step (-1: the last)", fontsize=8)
    axes.set(xlim=(ages[0], ages[-1]), ylim=(0, 1.03 * n_particles))
