"""Records of several seeds as one row for each panel and method, and geometric means over panels."""

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean, stdev

from benchmarks.panels.methods import METHODS
from benchmarks.panels.panels import PANELS
from benchmarks.panels.store import Record

NUMBERS = ("wql", "mase", "ratio", "coverage_80", "coverage_95", "expected_80", "expected_95")
SECONDS = ("fit_seconds", "fit_processor_seconds", "predict_seconds", "predict_processor_seconds")


@dataclass(frozen=True)
class Row:
    """Means over the seeds of a method on a panel; None for what it does not have."""

    panel: str
    method: str
    n_seeds: int
    wql: float
    mase: float
    ratio: float  # WQL / WQL of the seasonal naive forecast
    coverage_80: float | None = None
    coverage_95: float | None = None
    expected_80: float | None = None  # what the method itself thinks that its intervals cover
    expected_95: float | None = None
    fit_seconds: float | None = None
    fit_processor_seconds: float | None = None
    predict_seconds: float | None = None
    predict_processor_seconds: float | None = None
    wql_deviation: float | None = None  # between seeds


def rows_of(records: list[Record]) -> list[Row]:
    """In the order of PANELS and METHODS; other settings than the default are methods of their own."""
    groups = defaultdict(list)
    for record in records:
        groups[record["panel"], label(record)].append(record)
    rows = [Row(panel, method, len(group), **_means(group)) for (panel, method), group in groups.items()]
    panels, methods = list(PANELS), list(METHODS.values())

    def order(row: Row) -> tuple[int, int, str]:
        base = row.method.partition(",")[0]
        return panels.index(row.panel), methods.index(base), row.method

    return sorted(rows, key=order)


def label(record: Record) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in sorted(record["settings"].items()))
    return METHODS[record["method"]] + (f", {settings}" if settings else "")


def published_rows() -> list[Row]:
    """The published numbers; what was not published is None."""
    rows = []
    for panel in PANELS.values():
        naive = panel.published["Seasonal naive"].wql
        for method, scores in panel.published.items():
            if method != "Seasonal naive":  # ours stands for it: the same numbers
                ratio = scores.wql / naive
                rows.append(Row(panel.name, method, 1, scores.wql, scores.mase, ratio))
    return rows


def geometric_means(rows: list[Row]) -> dict[str, tuple[float, int]]:
    """Of each method: the geometric mean of WQL / seasonal naive WQL, and over how many panels."""
    ratios = defaultdict(list)
    for row in rows:
        ratios[row.method].append(row.ratio)
    return {method: (math.exp(fmean(map(math.log, found))), len(found)) for method, found in ratios.items()}


def _means(group: list[Record]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name in (*NUMBERS, *SECONDS):
        known = [record[name] for record in group if record.get(name) is not None]
        means[name] = fmean(known) if known else None
    means["wql_deviation"] = stdev(record["wql"] for record in group) if len(group) > 1 else None
    return means
