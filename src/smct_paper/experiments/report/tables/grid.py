"""What was run: profile, methods, seeds and windows of each data set."""

from smct_paper.experiments.report.cells import Table, TableRow, text_cell
from smct_paper.experiments.report.names import DATASET_TITLES, dataset_title
from smct_paper.experiments.report.results import Results, Row
from smct_paper.experiments.report.tables.times import SPLITS


def grid_table(results: Results) -> Table:
    """A row for each data set and split that has results."""
    rows = []
    for split in SPLITS:
        for dataset in DATASET_TITLES:
            chosen = results.select(split=split, dataset=dataset)
            if chosen:
                rows.append(_row(f"{dataset_title(dataset)}, {split}", chosen))
    return Table("", ("data, split", "profile", "methods", "seeds or folds", "test windows"), tuple(rows))


def _row(heading: str, rows: list[Row]) -> TableRow:
    repetitions: dict[object, set[int]] = {}
    for row in rows:
        repetitions.setdefault(row.method, set()).add(row.repetition)
    counts = {len(found) for found in repetitions.values()}
    cells = (
        ", ".join(sorted({row.profile for row in rows})),
        str(len(repetitions)),
        spanned(counts),
        spanned({row.n_windows for row in rows}),
    )
    return TableRow(heading, tuple(text_cell(text) for text in cells))


def spanned(numbers: set[int]) -> str:
    """One number, or the least and the greatest."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
