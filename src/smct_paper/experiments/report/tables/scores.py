"""Proper scores on real data (split `chronological`, without leakage)."""

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, average_part
from smct_paper.experiments.report.names import dataset_title, method_title, real_methods
from smct_paper.experiments.report.ranking import lowest
from smct_paper.experiments.report.results import Average, MethodKey, Results
from smct_paper.experiments.report.tables.notes import NO_FIGURE, not_run_note

METRICS = {
    "mse": "mse",
    "picp": "PICP",
    "mpiw": "MPIW",
    "crps": "CRPS",
    "winkler": "Winkler",
    "nll": "NLL",
    "energy_score": "energy score",
}
TASK_METRICS = {
    "unistep": ("mse", "picp", "mpiw", "crps", "winkler", "nll"),
    "multistep": ("mse", "picp", "mpiw", "crps", "winkler", "energy_score"),
}


def score_table(results: Results, task: str, dataset: str) -> Table:
    """All scores of all methods on one data set."""
    wanted = {"split": "chronological", "task": task, "dataset": dataset}
    found = results.methods(**wanted)
    methods = real_methods(found)
    metrics = TASK_METRICS[task]
    averages = {
        (method, metric): results.average(metric, method=method, **wanted) for method in methods for metric in metrics
    }
    best = lowest({key: average.mean for key in methods if (average := averages[key, "crps"]) is not None})

    def cell(method: MethodKey, metric: str) -> Cell:
        if method not in found:
            return MISSING
        return _cell(averages[method, metric], metric == "crps" and method in best)

    rows = [TableRow(method_title(key), tuple(cell(key, metric) for metric in metrics)) for key in methods]
    return Table(
        title=f"{dataset_title(dataset).capitalize()}, {task}",
        columns=("method", *(METRICS[metric] for metric in metrics)),
        rows=tuple(rows),
        notes=not_run_note([(key, dataset) for key in methods if key not in found], (dataset,)),
    )


def crps_table(results: Results, task: str) -> Table:
    """CRPS of all methods on all data sets, at a glance."""
    wanted = {"split": "chronological", "task": task}
    methods = real_methods(results.methods(**wanted))
    columns, missing = [], []
    for dataset in REAL_DATASETS:
        found = results.methods(dataset=dataset, **wanted)
        missing += [(key, dataset) for key in methods if key not in found]
        averages = {key: results.average("crps", dataset=dataset, method=key, **wanted) for key in methods}
        best = lowest({key: average.mean for key, average in averages.items() if average is not None})
        columns.append({key: _cell(averages[key], key in best) if key in found else MISSING for key in methods})
    missing.sort(key=lambda pair: methods.index(pair[0]))
    return Table(
        title=f"CRPS, {task} forecasts, split `chronological`",
        columns=("method", *map(dataset_title, REAL_DATASETS)),
        rows=tuple(TableRow(method_title(key), tuple(column[key] for column in columns)) for key in methods),
        notes=(
            "Bold: the lowest mean over seeds. For point forecasts the CRPS is the mean absolute error.",
            NO_FIGURE,
            *not_run_note(missing, REAL_DATASETS),
        ),
    )


def _cell(average: Average | None, best: bool) -> Cell:
    return EMPTY if average is None else Cell((average_part(average, best=best),))
