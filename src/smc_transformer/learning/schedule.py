"""Learning-rate schedules: functions from the step p = 1, 2, ... to a factor on the learning rate.

Being functions of the step alone, they need no state in a checkpoint.
"""

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def constant() -> Schedule:
    """No change."""
    return lambda step: 1.0


def warmup_cosine(n_steps: int, n_warmup: int = 0, final: float = 0.01) -> Schedule:
    """A linear warm-up, then half a cosine down to `final` at step `n_steps`, and constant from there."""

    def factor(step: int) -> float:
        if step <= n_warmup:
            return step / n_warmup
        progress = min(1.0, (step - n_warmup) / max(1, n_steps - n_warmup))
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))

    return factor


def warmup_inverse_sqrt(d_model: int, n_warmup: int = 4000) -> Schedule:
    """The schedule of Vaswani et al. (2017), to be used with a learning rate of 1."""
    return lambda step: d_model**-0.5 * min(step**-0.5, step * n_warmup**-1.5)
