"""The share of the SMC Transformer's predictive variance that is due to its latent variables."""

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, average_part
from smct_paper.experiments.report.names import (
    BEST,
    PAPER,
    SYNTHETIC_DATASETS,
    SYNTHETIC_METHODS,
    dataset_title,
    method_title,
)
from smct_paper.experiments.report.results import Average, MethodKey, Results


def latents_table(results: Results) -> Table | None:
    """The share of the one-step variance between particles, on validation windows; None where nothing was run."""
    on_synthetic = [method for method in SYNTHETIC_METHODS if method.model == BEST.model]
    groups = (("folds", SYNTHETIC_DATASETS, on_synthetic), ("chronological", REAL_DATASETS, [BEST, PAPER]))
    columns, rows = (*SYNTHETIC_DATASETS, *REAL_DATASETS), []
    for split, datasets, methods in groups:
        for method in methods:
            shares = {dataset: _share(results, split, dataset, method) for dataset in datasets}
            if any(share is not None for share in shares.values()):
                cells = tuple(_cell(shares[name]) if name in shares else EMPTY for name in columns)
                rows.append(TableRow(method_title(method), cells))
    if not rows:
        return None
    return Table(
        title="What the latents carry",
        columns=("configuration", *map(dataset_title, columns)),
        rows=tuple(rows),
        notes=(
            "The share of the variance of one-step forecasts that lies between particles, before any widening; the "
            "rest is observation noise. Real data: split `chronological`.",
        ),
    )


def _share(results: Results, split: str, dataset: str, method: MethodKey) -> Average | None:
    rows = results.select(split=split, dataset=dataset, method=method, task="unistep")
    return Average.over(row.training["between_particles"] for row in rows if "between_particles" in row.training)


def _cell(share: Average | None) -> Cell:
    return MISSING if share is None else Cell((average_part(share),))
