"""What each ingredient of `best` adds: the same configuration without it, on the same seeds."""

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.cells import MISSING, Cell, Table, TableRow, average_part
from smct_paper.experiments.report.names import BEST, dataset_title, ingredient_title, is_ablation
from smct_paper.experiments.report.results import MethodKey, Results
from smct_paper.experiments.report.tables.shared import not_run_note

FIGURES = {"multistep": "crps", "unistep": "nll"}
SPLIT = "chronological"


def ablation_table(results: Results) -> Table | None:
    """Differences to `best` in multistep CRPS and unistep NLL; None where no ablation was run."""
    ablations = sorted(key for key in results.methods(split=SPLIT) if is_ablation(key))
    if not ablations:
        return None
    rows = [TableRow("best", tuple(_cell(results, name, BEST) for name in REAL_DATASETS), "reference")]
    for key in ablations:
        heading = f"without {ingredient_title(key.config.removeprefix('best-'))}"
        rows.append(TableRow(heading, tuple(_cell(results, name, key) for name in REAL_DATASETS)))
    return Table(
        title=f"What each ingredient adds, split `{SPLIT}`",
        columns=("configuration", *map(dataset_title, REAL_DATASETS)),
        rows=rows,
        notes=(
            "First line: multistep CRPS. Second line: unistep NLL in nats a step. Below the first row, differences to "
            "`best`, paired by seed: above zero, the ingredient helps.",
            *not_run_note(results, ablations, REAL_DATASETS, split=SPLIT),
        ),
    )


def _cell(results: Results, dataset: str, method: MethodKey) -> Cell:
    """Averages of `best` itself, and differences of the others to it."""
    wanted = {"split": SPLIT, "dataset": dataset}
    if not results.select(method=method, **wanted):
        return MISSING
    averages = [
        results.average(metric, task=task, method=method, **wanted)
        if method == BEST
        else results.difference(metric, method, BEST, task=task, **wanted)
        for task, metric in FIGURES.items()
    ]
    return Cell(tuple(average_part(average, sign=method != BEST) for average in averages if average is not None))
