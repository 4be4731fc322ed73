"""What a smoother is: weighted trajectories that stand for the distribution of all latents given all observations.

A smoother is one small file in this folder with a function under the decorator `smoother`; its name is what settings
call it.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.resampling import Resampler


class History(NamedTuple):
    """What a filter leaves behind."""

    ancestors: Int[Tensor, "batch particle time"]  # parent of each particle at the step before
    log_weights: Float[Tensor, "batch particle time"]  # normalised, after each observation
    # Whether parents were drawn by the weights of the step before; None: at every step but the first.
    by_weight: Bool[Tensor, "batch time"] | None = None


class SmoothedTrajectories(NamedTuple):
    """Weighted trajectories: `trajectories[b, l, t]` is the particle that trajectory l uses at step t."""

    trajectories: Int[Tensor, "batch trajectory time"]
    log_weights: Float[Tensor, "batch trajectory"]
    ancestral: bool  # whether each is the ancestral trajectory of a particle, so that the filter has been through it


FutureDensity = Callable[[int, Tensor, int], Tensor]
"""future_density(step, trajectories, lag), (batch, trajectory, particle): for each pair the log density of
the next `lag` observations if that particle's past came before what the trajectory has chosen after the step."""


class Request(NamedTuple):
    """What is asked of a smoother, and the means it has."""

    n_trajectories: int | None  # None: as many as particles
    lag: int  # how many later observations tell about a step, for smoothers that cut off there
    resample: Resampler
    future_density: FutureDensity | None = None  # for smoothers that draw earlier particles again
    generator: Generator | None = None


Smoother = Callable[[History, Request], SmoothedTrajectories]

SMOOTHERS: dict[str, Smoother] = {}  # by name


def smoother(function: Smoother) -> Smoother:
    """Make a smoother known by its function's name."""
    SMOOTHERS[function.__name__] = function
    return function
