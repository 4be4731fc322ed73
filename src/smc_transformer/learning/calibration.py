"""Intervals as wide as held-out data ask for: one factor on the observation noise, found after training.

A model that is trained to minimise a score fits the training data a little too closely, and its intervals are a little
too narrow. One number, the widening of the noise, is enough to mend that; it is found on validation data by bisection.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.inference.filter import particle_filter
from smc_transformer.kernels import threads_for_kernels
from smc_transformer.learning.ragged import groups_by_start, split_horizon
from smc_transformer.model import SMCTransformer
from smc_transformer.scores import covered, sample_interval, where_observed
from smc_transformer.support import processes
from smc_transformer.support.checks import check_number
from smc_transformer.support.randomness import as_generator

NARROWEST, WIDEST = 0.5, 4.0
LEVEL = 0.95  # of the intervals whose coverage is measured
DRAWS, PARTICLES = 200, 32  # by which it is measured


def widen_to_cover(
    model: SMCTransformer, coverage: Callable[[SMCTransformer], float], level: float, n_halvings: int = 8
) -> float:
    """Widen or narrow the model's observation noise until held-out intervals cover `level` of the observations.

    `coverage` of a model, the share of held-out observations inside their intervals, grows with the noise. Returns the
    factor, which eight halvings find to about 0.01.
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
@threads_for_kernels()
def share_covered(
    model: SMCTransformer,
    x: Float[Tensor, "sequence time_plus_1 n_inputs"],
    n_scored: int,
    *,
    history: int | None = None,
    n_blocks: int = 1,
) -> float:
    """The share of observations of the first `n_scored` targets inside their 95 % intervals.

    The intervals are those of forecasts of all that follows X_0, ..., X_history; without a history, one step ahead.
    Sequences may begin at different rows: the horizon is the same for all, counted from the end. The median over blocks
    of consecutive sequences counts, so that one storm does not set the width of all intervals. In a process group each
    process looks at a share of the sequences.
    """
    found = processes.gather_made(lambda: _inside(model, x[processes.share(len(x))], n_scored, history))
    inside = torch.cat(found)
    return float(torch.stack([block.nanmean() for block in inside.tensor_split(n_blocks)]).nanmedian())


def _inside(
    model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"], n_scored: int, history: int | None
) -> Float[Tensor, "sequence time scored"]:
    """1 where an observation lies inside its interval and 0 where not; NaN where there is none."""
    generator, drawing = as_generator(processes.rank(), x.device), as_generator(processes.rank(), x.device)
    options: dict[str, Any] = {"on_collapse": "uniform"}
    inside = x.new_full((len(x), x.shape[1] - 1, n_scored), torch.nan, dtype=torch.double)
    for group in groups_by_start(x):
        if history is None:
            future = group.x[:, 1:]
            result = particle_filter(model, group.x, model.settings(PARTICLES), generator, **options)
            draws = result.predictive.sample(DRAWS, drawing)
        else:
            past, future = split_horizon(group.x, x.shape[1] - 1 - history)
            known, n_ahead = future[..., model.config.n_targets :], future.shape[1]
            draws = model.forecast(past, n_ahead, DRAWS, known, generator=generator, n_particles=PARTICLES, **options)
        draws, observed = draws[..., :n_scored], future[..., :n_scored]
        found = where_observed(covered(sample_interval(draws, LEVEL), observed), observed)
        inside[group.sequences, -future.shape[1] :] = found.double()
    return inside
