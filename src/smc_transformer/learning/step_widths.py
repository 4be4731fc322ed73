"""How wide forecasts of many steps should be, step by step, beside the noise of one step.

One factor on the noise (calibration.py) makes intervals of one step cover what they should. Errors of many steps add up
in ways that the noise of one step does not tell: each later step gets a factor of its own, by which its paths are moved
away from their median or towards it. On held-out windows, the distance of an observation from the median, in units of
the half of its interval on that side, is below 1 for as many observations as the interval should hold; the factor is
the quantile of these distances (split conformal prediction, averaged over two levels). A block of steps has few
observations, all of them together have many: the factor of a block is drawn towards the common one.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.learning.calibration import DRAWS, PARTICLES
from smc_transformer.learning.ragged import groups_by_start, split_horizon
from smc_transformer.model import SMCTransformer
from smc_transformer.support import processes
from smc_transformer.support.randomness import as_generator

LEVELS = (0.8, 0.95)
OBSERVATIONS = 300
"""Held-out observations of a block of steps, at least; as many weigh the common factor against a block's own, and the
belief that nothing need be changed against the common one."""
NARROWEST, WIDEST = 0.5, 10.0
"""Random walks ask for a lot: without memory of their errors, a horizon of H steps is too narrow by sqrt(H)."""


class HeldOut(NamedTuple):
    """Forecasts of the horizons of windows, beside what came: NaN in both where a window's horizon is shorter."""

    paths: Float[np.ndarray, "sequence path horizon target"]
    observed: Float[np.ndarray, "sequence horizon target"]  # NaN where nothing was observed


@torch.no_grad()
def held_out_forecasts(
    model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"], horizon: int, n_scored: int
) -> HeldOut:
    """Free-running forecasts of the horizon at the end of each window; each process of a group makes a share."""
    found = processes.gather_made(lambda: _forecasts(model, x[processes.share(len(x))], horizon, n_scored))
    return HeldOut(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _forecasts(
    model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"], horizon: int, n_scored: int
) -> HeldOut:
    paths = np.full((len(x), DRAWS, horizon, n_scored), np.nan)
    observed = np.full((len(x), horizon, n_scored), np.nan)
    generator = as_generator(processes.rank(), x.device)
    for group in groups_by_start(x):
        past, future = split_horizon(group.x, horizon)
        known = future[..., model.config.n_targets :]
        draws = model.forecast(
            past, future.shape[1], DRAWS, known, generator, n_particles=PARTICLES, on_collapse="uniform"
        )
        paths[group.sequences, :, -future.shape[1] :] = draws[..., :n_scored].double().numpy()
        observed[group.sequences, -future.shape[1] :] = future[..., :n_scored].double().numpy()
    return HeldOut(paths, observed)


def step_widths(held_out: HeldOut) -> Float[np.ndarray, "horizon"]:
    """The factor of each step of the horizon; 1 at the first one. All are 1 where too little was held out."""
    distances = _distances(held_out)  # (level, sequence, step, target)
    horizon = distances.shape[2]
    observed = ~np.isnan(distances[0])
    later = observed[:, 1:].sum()
    n_blocks = min(horizon - 1, int(later) // OBSERVATIONS)
    if n_blocks < 1:
        return np.ones(horizon)
    common = _believed(distances[:, :, 1:][:, observed[:, 1:]], 0.0)
    centres, logs = [0.0], [0.0]
    for block in np.array_split(np.arange(1, horizon), n_blocks):
        centres.append(float(block.mean()))
        logs.append(_believed(distances[:, :, block][:, observed[:, block]], common))
    return np.exp(np.interp(np.arange(horizon), centres, logs))


def _believed(distances: Float[np.ndarray, "level observation"], expected: float) -> float:
    """The logarithm of the factor that distances ask for, drawn towards what was expected of it."""
    factors = [np.quantile(own, level) for own, level in zip(distances, LEVELS, strict=True)]
    n, asked = distances.shape[1], float(np.log(np.clip(factors, NARROWEST, WIDEST)).mean())
    return expected + (asked - expected) * n / (n + OBSERVATIONS)


def stretched(
    paths: Float[np.ndarray, "series path horizon target"], widths: Float[np.ndarray, "horizon"]
) -> Float[np.ndarray, "series path horizon target"]:
    """Paths moved away from the median of each step, or towards it, by the factor of the step; their order stays."""
    if (widths == 1).all():
        return paths
    found = np.empty_like(paths)
    for own, moved in zip(paths, found, strict=True):  # one by one, as each fits into a processor's cache
        median = np.median(own, axis=0)
        moved[:] = median + widths[:, None] * (own - median)
    return found


def _distances(held_out: HeldOut) -> Float[np.ndarray, "level sequence horizon target"]:
    """Distances from the median in units of the half interval on that side; NaN where nothing was observed."""
    tails = [end for level in LEVELS for end in ((1 - level) / 2, (1 + level) / 2)]
    median, *ends = np.quantile(held_out.paths, [0.5, *tails], axis=1)
    y, found = held_out.observed, []
    for number in range(len(LEVELS)):
        lower, upper = ends[2 * number : 2 * number + 2]
        half = np.maximum(np.where(y > median, upper - median, median - lower), 1e-9)
        found.append(np.abs(y - median) / half)
    return np.stack(found)
