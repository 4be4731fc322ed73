"""What was run: profile, methods, seeds and windows of each data set."""

from smct_paper.experiments.report.cells import Table, TableRow, text_cell
from smct_paper.experiments.report.names import DATASET_TITLES
from smct_paper.experiments.report.results import Results, Row
from smct_paper.experiments.report.tables.times import SPLITS


def grid_table(results: Results) -> Table:
    """A row for each data set and split that has results."""
    rows = [
        _row(f"{title}, {split}", chosen)
        for split in SPLITS
        for dataset, title in DATASET_TITLES.items()
        if (chosen := results.select(split=split, dataset=dataset))
    ]
    return Table("", ("data, split", "profile", "methods", "seeds or folds", "test windows"), rows)


def _row(heading: str, rows: list[Row]) -> TableRow:
    methods = {row.method for row in rows}
    repetitions = {len({row.repetition for row in rows if row.method == method}) for method in methods}
    profiles = ", ".join(sorted({row.profile for row in rows}))
    texts = (profiles, str(len(methods)), spanned(repetitions), spanned({row.n_windows for row in rows}))
    return TableRow(heading, tuple(map(text_cell, texts)))


def spanned(numbers: set[int]) -> str:
    """One number, or the least and the greatest."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
