"""Footnotes that several tables share."""

from collections.abc import Iterable, Sequence

from smct_paper.experiments.report.cells import NOT_RUN
from smct_paper.experiments.report.names import dataset_title, method_title
from smct_paper.experiments.report.results import MethodKey

NO_FIGURE = "An empty place: the method has no such figure (a point forecast no interval, draws no density)."


def not_run_note(missing: Iterable[tuple[MethodKey, str]], datasets: Sequence[str]) -> tuple[str, ...]:
    """Which methods were not run on which data sets; nothing where all were."""
    by_method: dict[str, list[str]] = {}
    for method, dataset in missing:
        by_method.setdefault(method_title(method), []).append(dataset)
    if not by_method:
        return ()
    parts = []
    for title, names in by_method.items():
        everywhere = len(names) == len(datasets)
        parts.append(title if everywhere else f"{title} on {', '.join(map(dataset_title, names))}")
    return (f"{NOT_RUN} not run: {'; '.join(parts)}.",)
