"""Results as the runner wrote them, and the queries of tables and figures."""

import json
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeVar

from smct_paper.experiments.store import Store

LEVEL = 0.95  # of the intervals that PICP, MPIW and Winkler score are about
Name = TypeVar("Name", bound=Hashable)
HOW_TO_RUN = "make some with: smct experiment run synthetic, or: smct experiment run realworld"


class MethodKey(NamedTuple):
    """What a table has a row for."""

    model: str
    config: str


class Average(NamedTuple):
    """A figure over seeds or folds; one alone has no deviation."""

    mean: float
    deviation: float | None
    repetitions: int

    @classmethod
    def over(cls, values: Iterable[float]) -> "Average | None":
        """Mean and standard deviation; None where there is nothing."""
        numbers = list(values)
        if not numbers:
            return None
        # Forecasts that ran away are infinite, and an infinite mean has no deviation.
        spread = stdev(numbers) if len(numbers) > 1 and all(map(math.isfinite, numbers)) else None
        return cls(fmean(numbers), spread, len(numbers))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One task of one trained model."""

    dataset: str
    split: str
    task: str
    method: MethodKey
    repetition: int
    """The seed, or the fold of a synthetic set."""
    metrics: dict[str, float | None]
    profile: str = "unknown"
    settings: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None
    training: dict[str, Any] = field(default_factory=dict)
    per_step: dict[str, list[float | None]] = field(default_factory=dict)
    """None where a step has nothing to score."""
    pit: list[int] | None = None
    coverage: dict[str, list[float]] | None = None
    n_windows: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, row: dict[str, Any]) -> "Row":
        """A row of results.json."""
        known = {part.name: row[part.name] for part in fields(cls) if row.get(part.name) is not None}
        repetition = row["fold" if row["split"] == "folds" else "seed"]
        return cls(method=MethodKey(row["model"], row["config"]), repetition=repetition, **known)


@dataclass(frozen=True)
class Results:
    """All rows, and the cells that failed."""

    rows: list[Row]
    failures: dict[str, str] = field(default_factory=dict)
    """What each cell that did not finish failed with."""

    def select(self, **wanted: Any) -> list[Row]:
        """Rows whose attributes are those given, by repetition."""
        key = (wanted.get("dataset"), wanted.get("method"))
        rows = self.rows if None in key else self._index.get(key, [])
        found = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
        return sorted(found, key=lambda row: row.repetition)

    @cached_property
    def _index(self) -> dict[tuple[Any, Any], list[Row]]:
        """Rows by data set and method: tables ask for them thousands of times."""
        index: dict[tuple[Any, Any], list[Row]] = {}
        for row in self.rows:
            index.setdefault((row.dataset, row.method), []).append(row)
        return index

    def values(self, metric: str, **wanted: Any) -> dict[int, float]:
        """A metric by seed or fold; what a method does not have, or has as NaN, is left out."""
        found = {row.repetition: row.metrics.get(metric) for row in self.select(**wanted)}
        return {key: value for key, value in found.items() if value is not None and not math.isnan(value)}

    def average(self, metric: str, **wanted: Any) -> Average | None:
        """Mean and deviation of a metric over seeds or folds."""
        return Average.over(self.values(metric, **wanted).values())

    def means(self, metric: str, methods: Iterable[MethodKey], **wanted: Any) -> dict[MethodKey, float]:
        """The mean of a metric for each of the methods that have it."""
        averages = {method: self.average(metric, method=method, **wanted) for method in methods}
        return {method: average.mean for method, average in averages.items() if average is not None}

    def difference(self, metric: str, method: MethodKey, other: MethodKey, **wanted: Any) -> Average | None:
        """How much more one method has than another, paired by seed or fold."""
        one, two = (self.values(metric, method=chosen, **wanted) for chosen in (method, other))
        return Average.over(one[key] - two[key] for key in one if key in two)

    def methods(self, **wanted: Any) -> set[MethodKey]:
        """The methods that have rows."""
        return {row.method for row in self.select(**wanted)}


def read_results(results_dir: Path) -> Results:
    """Rows of results.json, and errors of the files under cells/.

    Raises:
        FileNotFoundError: if there are no results; the message says which command makes them.
    """
    store = Store(results_dir)
    rows = json.loads(store.results.read_text(encoding="utf-8")) if store.results.exists() else []
    if not rows:
        raise FileNotFoundError(f"no results in {store.results}, which is missing or an empty list; {HOW_TO_RUN}")
    return Results([Row.read(row) for row in rows], store.failures())


def best_intervals(pairs: Mapping[Name, tuple[float, float]]) -> set[Name]:
    """The winners among (PICP, MPIW) pairs, after Pearce et al. 2018.

    Below 0.95 the higher PICP wins; among those at 0.95 or more, the lower MPIW. Ties share the win.
    """
    return lowest({name: (0.0, mpiw) if picp >= LEVEL else (1.0, -picp) for name, (picp, mpiw) in pairs.items()})


def lowest(values: Mapping[Name, Any]) -> set[Name]:
    """Those with the lowest value."""
    least = min(values.values(), default=None)
    return {name for name, value in values.items() if value == least}
