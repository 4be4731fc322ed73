"""Intervals as wide as held-out data ask for: one factor on the observation noise, found after training.

Whoever trains to make a score small fits the training data a little too closely, and the intervals come out a little
too narrow. One number, the widening of the noise, is enough to mend that; it is found on validation data by bisection.
"""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

from smc_transformer.checks import check_number

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

NARROWEST, WIDEST = 0.5, 4.0


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
