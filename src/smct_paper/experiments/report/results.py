"""Results as the runner wrote them, and the queries of tables and figures."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

_INDEXED = {"dataset", "method"}
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


@dataclass(frozen=True)
class Row:
    """One task of one trained model."""

    dataset: str
    split: str
    task: str
    method: MethodKey
    repetition: int
    """The seed, or the fold of a synthetic set."""
    profile: str
    settings: dict[str, Any] | None
    evaluation: dict[str, Any] | None
    training: dict[str, Any]
    metrics: dict[str, float | None]
    per_step: dict[str, list[float | None]]
    """None where a step has nothing to score."""
    pit: list[int] | None
    coverage: dict[str, list[float]] | None
    n_windows: int
    seconds: dict[str, float]
    versions: dict[str, str]

    @classmethod
    def read(cls, row: dict[str, Any]) -> "Row":
        """A row of results.json."""
        repetition = row.get("fold") if row.get("seed") is None else row["seed"]
        if row["split"] == "folds" and row.get("fold") is not None:
            repetition = row["fold"]
        return cls(
            dataset=row["dataset"],
            split=row["split"],
            task=row["task"],
            method=MethodKey(row["model"], row["config"]),
            repetition=0 if repetition is None else int(repetition),
            profile=row.get("profile", "unknown"),
            settings=row.get("settings"),
            evaluation=row.get("evaluation"),
            training=row.get("training") or {},
            metrics=row["metrics"],
            per_step=row.get("per_step") or {},
            pit=row.get("pit"),
            coverage=row.get("coverage"),
            n_windows=int(row.get("n_windows", 0)),
            seconds=row.get("seconds") or {},
            versions=row.get("versions") or {},
        )


class Failure(NamedTuple):
    """A cell of the grid that did not finish."""

    cell: str
    reason: str


@dataclass(frozen=True)
class Results:
    """All rows, and the cells that failed."""

    rows: list[Row]
    failures: list[Failure] = field(default_factory=list)

    def select(self, **wanted: Any) -> list[Row]:
        """Rows whose attributes are those given, by repetition."""
        rows = self._index.get((wanted["dataset"], wanted["method"]), []) if wanted.keys() >= _INDEXED else self.rows
        found = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
        return sorted(found, key=lambda row: row.repetition)

    @cached_property
    def _index(self) -> dict[tuple[str, MethodKey], list[Row]]:
        """Rows by data set and method: tables ask for them thousands of times."""
        index: dict[tuple[str, MethodKey], list[Row]] = {}
        for row in self.rows:
            index.setdefault((row.dataset, row.method), []).append(row)
        return index

    def values(self, metric: str, **wanted: Any) -> dict[int, float]:
        """A metric by seed or fold; what a method does not have, or has as NaN, is left out."""
        found = {}
        for row in self.select(**wanted):
            value = row.metrics.get(metric)
            if value is not None and not math.isnan(value):
                found[row.repetition] = float(value)
        return found

    def average(self, metric: str, **wanted: Any) -> Average | None:
        """Mean and deviation of a metric over seeds or folds."""
        return Average.over(self.values(metric, **wanted).values())

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
    path = Path(results_dir) / "results.json"
    if not path.exists():
        raise FileNotFoundError(f"no results in {results_dir} (results.json is missing); {HOW_TO_RUN}")
    rows = json.loads(path.read_text(encoding="utf-8"))
    if not rows:
        raise FileNotFoundError(f"no results in {path}: the list is empty; {HOW_TO_RUN}")
    return Results([Row.read(row) for row in rows], _failures(Path(results_dir) / "cells"))


def _failures(folder: Path) -> list[Failure]:
    found = []
    for path in sorted(folder.glob("*.json")):
        cell = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(cell, dict) and cell.get("error"):
            error = cell["error"]
            lines = [line for line in (error if isinstance(error, list) else str(error).splitlines()) if line.strip()]
            found.append(Failure(path.stem, lines[-1].strip()))
    return found
