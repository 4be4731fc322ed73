"""How much the steps of a path go together: one number, by which sums over a horizon are as wide as held-out ones ask.

Widths of single steps (calibration.py, step_widths.py) say nothing about their dependence. A network that was a little
wrong about a level is wrong in the same direction at every step, which paths of its own noise do not show: sums of
their steps are too narrow. Here the draws of each step are dealt out to the paths anew. Where path i stands among the
draws of step h, in units of their deviation, z_ih, is mixed with where it stands on average,

    z'_ih = sqrt(1 - share) z_ih + sqrt(share) c_i,    c_i = mean over h of z_ih, in units of its deviation,

and path i gets the draw whose rank is that of z'_ih. The distribution of every step stays as it is, to the bit; a share
of 0 changes nothing, with 1 the paths keep their order at all steps.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

LEVELS = (0.8, 0.95)
LARGEST = 0.95
HALVINGS = 6
SUMS = 100
"""Held-out sums, at least; and as many as the belief that nothing need be changed."""


def persistent(
    paths: Float[np.ndarray, "sequence path horizon target"], share: float
) -> Float[np.ndarray, "sequence path horizon target"]:
    """The paths, with the draws of each step dealt out anew."""
    if share == 0 or min(paths.shape[1:3]) < 2:
        return paths
    return np.stack([_dealt_anew(_places(own), share) for own in paths])  # each fits into a processor's cache


class _Places(NamedTuple):
    """Where paths stand at each step, whatever the share."""

    ordered: Float[np.ndarray, "horizon target path"]  # the draws of each step
    of_paths: Float[np.ndarray, "horizon target path"]
    usual: Float[np.ndarray, "target path"]


def _places(paths: Float[np.ndarray, "path horizon target"]) -> _Places:
    draws = np.ascontiguousarray(np.moveaxis(paths, 0, -1))
    places = _standard(draws)
    return _Places(np.sort(draws, axis=-1), places, _standard(places.mean(axis=0)))


def _dealt_anew(places: _Places, share: float) -> Float[np.ndarray, "path horizon target"]:
    mixed = np.sqrt(1 - share) * places.of_paths + np.sqrt(share) * places.usual
    dealt = np.empty_like(places.ordered)
    order = mixed.argsort(axis=-1)
    for step in np.ndindex(dealt.shape[:-1]):
        dealt[step][order[step]] = places.ordered[step]
    return np.moveaxis(dealt, -1, 0)


def persistence(
    paths: Float[np.ndarray, "sequence path horizon target"], observed: Float[np.ndarray, "sequence horizon target"]
) -> float:
    """The smallest share for which intervals of sums over the horizon cover what they should, on average over levels.

    Sums with a missing step do not count; where there are few, the share is made smaller, and 0 below a number of them.
    """
    sums = observed.sum(axis=1)  # (sequence, target), NaN where a step is missing
    known = ~np.isnan(sums)
    n = int(known.sum())
    if n < SUMS or paths.shape[2] < 2:
        return 0.0

    every = [_places(own) for own in paths]

    def shortfall(share: float) -> float:
        dealt = paths if share == 0 else (_dealt_anew(places, share) for places in every)
        drawn = np.stack([own.sum(axis=1) for own in dealt])  # (sequence, path, target)
        missed = 0.0
        for level in LEVELS:
            lower, upper = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=1)
            missed += level - float(((lower <= sums) & (sums <= upper))[known].mean())
        return missed

    low, high = 0.0, LARGEST
    if shortfall(low) <= 0:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if shortfall(middle) > 0 else (low, middle)
    return high * n / (n + SUMS)


def _standard(draws: Float[np.ndarray, "*batch path"]) -> Float[np.ndarray, "*batch path"]:
    """Centred, in units of their deviation; zeros where all are the same."""
    centred = draws - draws.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True))
    return centred / np.where(deviation > 0, deviation, 1.0)
