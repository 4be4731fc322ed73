"""The best entries of a column."""

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)

LEVEL = 0.95


def best_intervals(pairs: Mapping[Name, tuple[float, float]]) -> set[Name]:
    """The winners among (PICP, MPIW) pairs, after Pearce et al. 2018.

    Below 0.95 the higher PICP wins; among those at 0.95 or more, the lower MPIW. Ties share the win.
    """
    return lowest({name: (0.0, mpiw) if picp >= LEVEL else (1.0, -picp) for name, (picp, mpiw) in pairs.items()})


def lowest(values: Mapping[Name, Any]) -> set[Name]:
    """Those with the lowest value."""
    least = min(values.values(), default=None)
    return {name for name, value in values.items() if value == least}
