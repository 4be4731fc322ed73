"""Pictures of predictive distributions and particle genealogies (needs the extra `plots`: matplotlib).

Every function draws on given axes, so that pictures combine; nothing touches pyplot's global state.
"""

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from torch import Tensor

from smc_transformer.charts.style import BLUE, GREY, INK, PINK, RED
from smc_transformer.predictive import Mixture
from smc_transformer.smc.genealogy import trace_trajectories

LEVELS = (0.95, 0.8, 0.5, 0.2)
"""Central intervals that a fan chart shades, from the widest to the narrowest."""


def draw_predictive(
    axes: Axes,
    predictive: Mixture,
    observed: Float[Tensor, "batch time target"],
    *,
    sequence: int = 0,
    target: int = 0,
    true_interval: tuple[Tensor, Tensor] | None = None,
) -> None:
    """A fan chart of one-step predictive distributions, with the observations and, if known, the true 95 % band."""
    steps = range(1, observed.shape[1] + 1)
    for shade, level in enumerate(LEVELS):
        lower, upper = (end[sequence, :, target].cpu() for end in predictive.interval(level))
        label = f"predicted {100 * level:.0f} %" if level in (0.95, 0.5) else None
        axes.fill_between(steps, lower, upper, color=BLUE, alpha=0.15 + 0.08 * shade, linewidth=0, label=label)
    axes.plot(steps, predictive.mean[sequence, :, target].cpu(), color=BLUE, linewidth=1.5, label="predicted mean")
    if true_interval is not None:
        for end, label in zip(true_interval, ("true 95 % band", None), strict=True):
            axes.plot(steps, end[sequence, :, target].cpu(), color=RED, linestyle="--", linewidth=1.3, label=label)
    axes.plot(steps, observed[sequence, :, target].cpu(), "o", color=INK, markersize=3.5, label="observed")
    axes.set(xlabel="time step", ylabel="value", xlim=(0.5, observed.shape[1] + 0.5))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=5, frameon=False, fontsize=9)


def draw_genealogy(
    axes: Axes,
    ancestors: Int[Tensor, "batch particle time"],
    log_weights: Float[Tensor, "batch particle time"],
    *,
    sequence: int = 0,
) -> None:
    """The family tree of one filter run, as in the paper's appendix.

    Blue: particles of the last step. Pink: their ancestors. White: trajectories that died out. Sizes show weights.
    """
    parents, weights = ancestors[sequence].cpu(), log_weights[sequence].exp().cpu()
    n_particles, n_steps = parents.shape
    trajectories = trace_trajectories(parents.unsqueeze(0))[0]
    alive = torch.zeros(n_particles, n_steps, dtype=torch.bool).scatter(0, trajectories, True)
    for step in range(1, n_steps):
        for particle in range(n_particles):
            colour, width, order = (INK, 1.0, 2) if alive[particle, step] else (GREY, 0.5, 1)
            ends = (int(parents[particle, step]) + 1, particle + 1)
            axes.plot((step, step + 1), ends, color=colour, linewidth=width, zorder=order)
    rows, columns = torch.cartesian_prod(torch.arange(1, n_particles + 1), torch.arange(1, n_steps + 1)).T
    colours = [
        BLUE if step == n_steps - 1 else (PINK if alive[particle, step] else "white")
        for particle in range(n_particles)
        for step in range(n_steps)
    ]
    sizes = (12 + 60 * n_particles * weights.flatten()).clamp(max=160)
    axes.scatter(columns, rows, s=sizes, c=colours, edgecolors=INK, linewidths=0.5, zorder=3)
    axes.invert_yaxis()
    axes.set(xlabel="time step", ylabel="particle")


def draw_unique_ancestors(axes: Axes, counts: Int[Tensor, "batch time"], n_particles: int) -> None:
    """How many different particles of each past step the last ones descend from: mean and 95 % band over sequences."""
    ages = range(-counts.shape[1], 0)
    lower, upper = counts.double().quantile(torch.tensor([0.025, 0.975]).double(), dim=0)
    axes.fill_between(ages, lower, upper, color=BLUE, alpha=0.2, linewidth=0, label="95 % of the sequences")
    axes.plot(ages, counts.double().mean(dim=0), color=BLUE, linewidth=1.8, label="mean")
    axes.axhline(n_particles, color=GREY, linestyle=":", linewidth=1.2)
    text = f"{n_particles} particles"
    axes.annotate(text, (ages[0], n_particles), (6, -12), textcoords="offset points", fontsize=9)
    axes.set(xlabel="past time step (-1: the last)", ylabel="unique ancestors")
    axes.set(xlim=(ages[0], ages[-1]), ylim=(0, n_particles * 1.05))
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88), frameon=False, fontsize=9)
