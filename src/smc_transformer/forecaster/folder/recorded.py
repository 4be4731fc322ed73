"""What a stream has answered, as a folder tells it: from the store, or from the journal of an earlier version."""

from typing import Any, NamedTuple

from smc_transformer.forecaster.table import Name
from smc_transformer.support.checks import check_number


class Seen(NamedTuple):
    """How much of a stream a forecaster has seen."""

    n_lines: int = 0
    last_answers: tuple[dict[str, Any], ...] = ()  # those of the last batch, which a kill may have kept from its sender


class Round(NamedTuple):
    """Rows that went through the filter together, at most one of a series."""

    rows: tuple[dict[str, Any], ...]  # as JSON holds them
    distrust: int | float | None  # the level at which they were distrusted, as in `Forecaster.update`
    names: tuple[Name, ...] | None = None  # the series of each, where they are known beside the rows


class Recorded(NamedTuple):
    """What a stream has answered, and the rows since the states were saved, in order."""

    place: str = "no stream"  # what errors call it
    seen: Seen = Seen()
    rounds: tuple[Round, ...] = ()
    distrust: int | float | None = None  # of the rows to come


def read_level(stored: Any) -> int | float | None:
    """A level of distrust, or none."""
    if stored is not None:
        check_number(stored, "distrust", at_most=100.0, positive=True)
    return stored


def read_answers(stored: Any) -> tuple[dict[str, Any], ...]:
    """A list of answers."""
    if not isinstance(stored, list) or not all(isinstance(one, dict) for one in stored):
        raise TypeError(f"answers must be a list of objects, got {type(stored).__name__}")
    return tuple(stored)


def read_cells(stored: Any) -> dict[str, Any]:
    """A row."""
    if not isinstance(stored, dict):
        raise TypeError(f"a row must be an object, got {type(stored).__name__}")
    return stored
