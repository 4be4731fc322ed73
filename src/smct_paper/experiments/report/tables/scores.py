"""Proper scores on real data (split `chronological`, without leakage)."""

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.cells import Table, TableRow
from smct_paper.experiments.report.names import dataset_title, method_title, real_methods
from smct_paper.experiments.report.results import Results, lowest
from smct_paper.experiments.report.tables.shared import NO_FIGURE, not_run_note, score_cell

METRICS = {"mse": "mse", "picp": "PICP", "mpiw": "MPIW", "crps": "CRPS", "winkler": "Winkler"}
JOINT_METRIC = {"unistep": {"nll": "NLL"}, "multistep": {"energy_score": "energy score"}}
"""Of all targets together, and of all steps of a path."""


def score_table(results: Results, task: str, dataset: str) -> Table:
    """All scores of all methods on one data set."""
    wanted = {"split": "chronological", "task": task}
    methods = real_methods(results.methods(dataset=dataset, **wanted))
    metrics = METRICS | JOINT_METRIC[task]
    winners = {"crps": lowest(results.means("crps", methods, dataset=dataset, **wanted))}
    rows = []
    for method in methods:
        chosen = {"dataset": dataset, "method": method, **wanted}
        cells = (score_cell(results, metric, chosen, best=method in winners.get(metric, ())) for metric in metrics)
        rows.append(TableRow(method_title(method), tuple(cells)))
    return Table(
        title=f"{dataset_title(dataset).capitalize()}, {task}",
        columns=("method", *metrics.values()),
        rows=rows,
        notes=not_run_note(results, methods, (dataset,), **wanted),
    )


def crps_table(results: Results, task: str) -> Table:
    """CRPS of all methods on all data sets, at a glance."""
    wanted = {"split": "chronological", "task": task}
    methods = real_methods(results.methods(**wanted))
    winners = {name: lowest(results.means("crps", methods, dataset=name, **wanted)) for name in REAL_DATASETS}
    rows = []
    for method in methods:
        cells = (
            score_cell(results, "crps", {"dataset": name, "method": method, **wanted}, best=method in winners[name])
            for name in REAL_DATASETS
        )
        rows.append(TableRow(method_title(method), tuple(cells)))
    return Table(
        title=f"CRPS, {task} forecasts, split `chronological`",
        columns=("method", *map(dataset_title, REAL_DATASETS)),
        rows=rows,
        notes=(
            "Bold: the lowest mean over seeds. For point forecasts the CRPS is the mean absolute error.",
            NO_FIGURE,
            *not_run_note(results, methods, REAL_DATASETS, **wanted),
        ),
    )
