"""Cells and footnotes that several tables share."""

from collections.abc import Iterable, Sequence
from typing import Any

from smct_paper.experiments.report.cells import MISSING, NOT_RUN, Cell, average_cell
from smct_paper.experiments.report.names import dataset_title, method_title
from smct_paper.experiments.report.results import MethodKey, Results

NO_FIGURE = "An empty place: the method has no such figure (a point forecast no interval, draws no density)."


def score_cell(results: Results, metric: str, wanted: dict[str, Any], digits: int = 3, *, best: bool = False) -> Cell:
    """The average of a metric over the wanted rows; a dash where nothing was run."""
    return average_cell(results.average(metric, **wanted), digits, best=best) if results.select(**wanted) else MISSING


def not_run_note(
    results: Results, methods: Iterable[MethodKey], datasets: Sequence[str], **wanted: Any
) -> tuple[str, ...]:
    """Which methods were not run on which data sets; nothing where all were."""
    parts = []
    for method in methods:
        missing = [name for name in datasets if not results.select(dataset=name, method=method, **wanted)]
        where = "" if len(missing) == len(datasets) else f" on {', '.join(map(dataset_title, missing))}"
        parts += [f"{method_title(method)}{where}"] if missing else []
    return (f"{NOT_RUN} not run: {'; '.join(parts)}.",) if parts else ()
