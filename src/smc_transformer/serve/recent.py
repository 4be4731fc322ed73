"""The last surprises: how far out each accepted value was, as the particles had predicted it."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from smc_transformer.forecaster.table import Name

MOST = 20_000
"""Values that are remembered; alerts are remembered beyond them."""
MOST_ALERTS, MOST_BEGINNINGS = 1_000, 100


class Surprise(NamedTuple):
    """One accepted value."""

    number: int  # counted from the start of the process
    received: float  # when it was accepted, in seconds since 1970; 0 if before the start of the process
    series: Name
    time: Any  # as answers have it
    target: str
    value: float
    pit: float | None
    log_density: float | None
    tail: float  # probability of a value at least as far out, on both sides: 1 in the middle, 0 far out

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return self._asdict()


class Beginning(NamedTuple):
    """A series that has begun."""

    received: float  # as of a surprise
    series: Name
    time: Any  # of its first row, as answers have it


class Recent:
    """The last values, the last of those that lay outside the level of alerts, and the last series that have begun."""

    def __init__(self, alert: int | float) -> None:
        self.alert = alert  # percent
        self._values: deque[Surprise] = deque(maxlen=MOST)
        self._alerts: deque[Surprise] = deque(maxlen=MOST_ALERTS)
        self._beginnings: deque[Beginning] = deque(maxlen=MOST_BEGINNINGS)
        self._count = itertools.count(1)
        self._turn = threading.Lock()  # the worker adds, requests look

    def add(self, name: Name, when: Any, surprises: Iterable[dict[str, Any]], received: float | None) -> list[Surprise]:
        """Remember an answer; those of its values that are alerts."""
        alerts = []
        for one in surprises:
            pit = one["pit"]
            tail = 1.0 if pit is None else 2 * min(pit, 1 - pit)
            numbers = (one["target"], one["value"], pit, one["log_density"], tail)
            found = Surprise(next(self._count), received or 0.0, name, when, *numbers)
            if tail < 1 - self.alert / 100:
                alerts.append(found)
            with self._turn:
                self._values.append(found)
                self._alerts.extend(alerts[-1:] if alerts and alerts[-1] is found else ())
        return alerts

    def newest(self, most: int, *, series: Name | None = None, alerts: bool = False) -> list[Surprise]:
        """The last values, the newest first."""
        with self._turn:
            chosen = (one for one in reversed(self._alerts if alerts else self._values) if series in (None, one.series))
            return list(itertools.islice(chosen, most))

    def begin(self, one: Beginning) -> None:
        """Remember a series that has begun."""
        with self._turn:
            self._beginnings.append(one)

    def beginnings(self, most: int, seconds: int | float) -> list[Beginning]:
        """Series that have begun in the last seconds, the newest first."""
        since = time.time() - seconds
        with self._turn:
            chosen = itertools.takewhile(lambda one: one.received >= since, reversed(self._beginnings))
            return list(itertools.islice(chosen, most))

    def most_surprising(self, most: int, seconds: int | float) -> list[Surprise]:
        """Of each series the value that was farthest out, among those of the last seconds; the farthest first."""
        since = time.time() - seconds
        worst: dict[Name, Surprise] = {}
        with self._turn:
            values = list(itertools.takewhile(lambda one: one.received >= since, reversed(self._values)))
        for one in values:
            if one.series not in worst or _order(one) < _order(worst[one.series]):
                worst[one.series] = one
        return sorted(worst.values(), key=_order)[:most]


def _order(one: Surprise) -> tuple[float, float]:
    """By the tail, which does not depend on units; where it is zero to rounding, by the density."""
    return one.tail if one.tail > 1e-7 else 0.0, one.log_density or 0.0
