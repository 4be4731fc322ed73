"""The share of the SMC Transformer's predictive variance that is due to its latent variables."""

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report import names
from smct_paper.experiments.report.cells import EMPTY, MISSING, Table, TableRow, average_cell
from smct_paper.experiments.report.results import Average, Results

GROUPS = (
    ("folds", names.SYNTHETIC_DATASETS, names.SYNTHETIC_SMC),
    ("chronological", REAL_DATASETS, (names.BEST, names.PAPER)),
)


def latents_table(results: Results) -> Table | None:
    """The share of the one-step variance between particles, on validation windows; None where nothing was run."""
    rows = []
    for split, datasets, methods in GROUPS:
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
