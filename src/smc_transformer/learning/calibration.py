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
from smc_transformer.scores import covered, sample_interval
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
def one_step_coverage(
    model: "SMCTransformer", x: Float[Tensor, "sequence time_plus_1 n_inputs"], n_scored: int, *, n_blocks: int = 1
) -> float:
    """The share of observations inside their 95 % intervals one step ahead.

    Args:
        model: the model.
        x: held-out sequences; NaN is missing.
        n_scored: targets that count, the first ones.
        n_blocks: blocks of consecutive sequences whose median coverage counts, so that one storm does not set the
            width of all intervals.
    """
    result = particle_filter(model, x, model.settings(PARTICLES), as_generator(0), on_collapse="uniform")
    draws = result.predictive.sample(DRAWS, 0)
    return _share_covered(draws[..., :n_scored], x[:, 1:, :n_scored], n_blocks)


@torch.no_grad()
def forecast_coverage(
    model: "SMCTransformer",
    x: Float[Tensor, "sequence time_plus_1 n_inputs"],
    history: int,
    n_scored: int,
    *,
    n_blocks: int = 1,
) -> float:
    """The same for forecasts of all that follows X_0, ..., X_H; `history` is H."""
    past, future = x[:, : history + 1], x[:, history + 1 :]
    known = future[..., model.config.n_targets :]
    paths = model.forecast(
        past, future.shape[1], DRAWS, known, generator=0, n_particles=PARTICLES, on_collapse="uniform"
    )
    return _share_covered(paths[..., :n_scored], future[..., :n_scored], n_blocks)


def _share_covered(
    draws: Float[Tensor, "sequence draw time scored"], observed: Float[Tensor, "sequence time scored"], n_blocks: int
) -> float:
    inside = covered(sample_interval(draws, LEVEL), observed).double().masked_fill(observed.isnan(), float("nan"))
    return float(torch.stack([block.nanmean() for block in inside.tensor_split(n_blocks)]).nanmedian())
