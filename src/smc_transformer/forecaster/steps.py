"""Which steps ahead a forecast is asked for."""

from collections.abc import Sequence

from smc_transformer.forecaster.frequency import LONGEST
from smc_transformer.support.checks import check_count


def asked_steps(h: int | Sequence[int] | None, horizon: int) -> list[int]:
    """Steps ahead, from 1 on and in order: all up to a number, or those listed; None: all of the horizon."""
    if h is None:
        return list(range(1, horizon + 1))
    if not isinstance(h, Sequence):
        return list(range(1, check_count(h, "h", at_most=LONGEST) + 1))
    steps = sorted({check_count(step, "h", at_most=LONGEST) for step in h})
    if not steps:
        raise ValueError("h must name at least one step, got none")
    return steps
