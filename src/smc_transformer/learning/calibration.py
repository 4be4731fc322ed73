"""Intervals as wide as held-out data ask for: one factor on the observation noise, found after training.

Whoever trains to make a score small fits the training data a little too closely, and the intervals come out a little
too narrow. One number, the widening of the noise, is enough to mend that; it is found on validation data by bisection.
"""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.inference.filter import particle_filter
from smc_transformer.scores import covered, sample_interval, where_observed
from smc_transformer.support.checks import check_number
from smc_transformer.support.randomness import as_generator

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

NARROWEST, WIDEST = 0.5, 4.0
LEVEL = 0.95
"""Of the intervals whose coverage is measured."""
DRAWS, PARTICLES = 200, 32
"""By which it is measured."""


def widen_to_cover(
    model: "SMCTransformer", coverage: Callable[["SMCTransformer"], float], level: float, n_halvings: int = 8
) -> float:
    """Widen or narrow the model's observation noise until held-out intervals cover `level` of the observations.

    Args:
        model: changed in place.
        coverage: the share of held-out observations inside their intervals; grows with the noise.
        level: the share wanted.
        n_halvings: steps of the bisection; eight find the factor to about 0.01.

    Returns:
        The factor.
    """
    level = check_number(level, "level", positive=True, at_most=1.0)
    narrow, wide = NARROWEST, WIDEST
    for _ in range(n_halvings):
        factor = (narrow * wide) ** 0.5
        candidate = copy.deepcopy(model)
        candidate.observation.widen_(factor)
        if coverage(candidate) < level:
            narrow = factor
        else:
            wide = factor
    model.observation.widen_(wide)
    return wide


@torch.no_grad()
def share_covered(
    model: "SMCTransformer",
    x: Float[Tensor, "sequence time_plus_1 n_inputs"],
    n_scored: int,
    *,
    history: int | None = None,
    n_blocks: int = 1,
) -> float:
    """The share of observations inside their 95 % intervals: one step ahead, or of forecasts.

    Args:
        model: the model.
        x: held-out sequences; NaN is missing.
        n_scored: targets that count, the first ones.
        history: H, for forecasts of all that follows X_0, ..., X_H; None: one step ahead.
        n_blocks: blocks of consecutive sequences whose median coverage counts, so that one storm does not set the
            width of all intervals.
    """
    if history is None:
        settings = model.settings(PARTICLES)
        mixture = particle_filter(model, x, settings, as_generator(0), on_collapse="uniform").predictive
        draws, future = mixture.sample(DRAWS, 0), x[:, 1:]
    else:
        past, future = x[:, : history + 1], x[:, history + 1 :]
        known = future[..., model.config.n_targets :]
        draws = model.forecast(
            past, future.shape[1], DRAWS, known, generator=0, n_particles=PARTICLES, on_collapse="uniform"
        )
    draws, observed = draws[..., :n_scored], future[..., :n_scored]
    inside = where_observed(covered(sample_interval(draws, LEVEL), observed), observed).double()
    return float(torch.stack([block.nanmean() for block in inside.tensor_split(n_blocks)]).nanmedian())
