"""What each ingredient of `best` adds: the same configuration without it, on the same seeds."""

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, average_part
from smct_paper.experiments.report.names import BEST, dataset_title, ingredient_title, is_ablation
from smct_paper.experiments.report.results import MethodKey, Results
from smct_paper.experiments.report.tables.notes import not_run_note

FIGURES = {"multistep": "crps", "unistep": "nll"}


def ablation_table(results: Results) -> Table | None:
    """Differences to `best` in multistep CRPS and unistep NLL; None where no ablation was run."""
    found = results.methods(split="chronological")
    ablations = sorted(key for key in found if is_ablation(key))
    if not ablations:
        return None
    rows = [TableRow("best", tuple(_best_cell(results, name) for name in REAL_DATASETS), "reference")]
    missing = []
    for key in ablations:
        cells = []
        for dataset in REAL_DATASETS:
            if not results.select(split="chronological", dataset=dataset, method=key):
                missing.append((key, dataset))
            cells.append(_cell(results, dataset, key))
        rows.append(TableRow(f"without {ingredient_title(key.config.removeprefix('best-'))}", tuple(cells)))
    return Table(
        title="What each ingredient adds, split `chronological`",
        columns=("configuration", *map(dataset_title, REAL_DATASETS)),
        rows=tuple(rows),
        notes=(
            "First line: multistep CRPS. Second line: unistep NLL in nats a step. Below the first row, differences to "
            "`best`, paired by seed: above zero, the ingredient helps.",
            *not_run_note(missing, REAL_DATASETS),
        ),
    )


def _best_cell(results: Results, dataset: str) -> Cell:
    wanted = {"split": "chronological", "dataset": dataset, "method": BEST}
    if not results.select(**wanted):
        return MISSING
    averages = (results.average(metric, task=task, **wanted) for task, metric in FIGURES.items())
    return Cell(tuple(average_part(average) for average in averages if average is not None))


def _cell(results: Results, dataset: str, method: MethodKey) -> Cell:
    wanted = {"split": "chronological", "dataset": dataset}
    if not results.select(method=method, **wanted):
        return MISSING
    differences = (results.difference(metric, method, BEST, task=task, **wanted) for task, metric in FIGURES.items())
    parts = tuple(average_part(average, sign=True) for average in differences if average is not None)
    return Cell(parts) if parts else EMPTY
