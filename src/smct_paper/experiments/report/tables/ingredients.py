"""The ingredients of the SMC Transformer: what each of `best` adds, on the same seeds, and what the latents carry."""

from smct_paper.experiments.grid import is_ablation
from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report import names
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, average_cell, average_part
from smct_paper.experiments.report.names import BEST, dataset_title
from smct_paper.experiments.report.results import Average, MethodKey, Results
from smct_paper.experiments.report.tables.shared import not_run_note

FIGURES = {"multistep": "crps", "unistep": "nll"}
SPLIT = "chronological"
WITH_LATENTS = (("folds", names.SYNTHETIC_DATASETS, names.SYNTHETIC_SMC), (SPLIT, REAL_DATASETS, (BEST, names.PAPER)))


def ablation_table(results: Results) -> Table | None:
    """Differences to `best` in multistep CRPS and unistep NLL; None where no ablation was run."""
    ablations = sorted(key for key in results.methods(split=SPLIT) if is_ablation(*key))
    if not ablations:
        return None
    rows = [TableRow("best", tuple(_cell(results, name, BEST) for name in REAL_DATASETS), "reference")]
    for key in ablations:
        heading = f"without {names.ingredient_title(key.config.removeprefix('best-'))}"
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


def latents_table(results: Results) -> Table | None:
    """The share of the one-step variance between particles, on validation windows; None where nothing was run."""
    rows = []
    for split, datasets, methods in WITH_LATENTS:
        for method in methods:
            cells = dict.fromkeys(names.DATASET_TITLES, EMPTY)
            for dataset in datasets:
                found = results.select(split=split, dataset=dataset, method=method, task="unistep")
                shares = [row.training["between_particles"] for row in found if "between_particles" in row.training]
                cells[dataset] = average_cell(Average.over(shares), none=MISSING)
            if any(cell not in (EMPTY, MISSING) for cell in cells.values()):
                rows.append(TableRow(names.method_title(method), tuple(cells.values())))
    if not rows:
        return None
    return Table(
        title="What the latents carry",
        columns=("configuration", *names.DATASET_TITLES.values()),
        rows=rows,
        notes=(
            "The share of the variance of one-step forecasts that lies between particles, before any widening; the "
            "rest is observation noise. Real data: split `chronological`.",
        ),
    )
