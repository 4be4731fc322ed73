"""What was run, and how long training took."""

from smct_paper.experiments.grid import is_ablation
from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report import names
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, text_cell
from smct_paper.experiments.report.results import MethodKey, Results, Row

SPLITS = {"folds": names.SYNTHETIC_DATASETS, "chronological": REAL_DATASETS, "paper": REAL_DATASETS}


def grid_table(results: Results) -> Table:
    """A row for each data set and split that has results."""
    rows = [
        _row(f"{title}, {split}", chosen)
        for split in SPLITS
        for dataset, title in names.DATASET_TITLES.items()
        if (chosen := results.select(split=split, dataset=dataset))
    ]
    return Table("", ("data, split", "profile", "methods", "seeds or folds", "test windows"), rows)


def made_with(results: Results) -> list[str]:
    """A sentence for each set of versions, with the commits that made cells with it."""
    commits: dict[str, set[str]] = {}
    for row in results.rows:
        versions = {name: value for name, value in row.versions.items() if name != "commit"}
        commit, _, changed = row.versions.get("commit", "").partition("-")
        short = commit[:7] + ("-changed" if changed else "")
        commits.setdefault(", ".join(f"{name} {value}" for name, value in versions.items()), set()).add(short)
    return [
        f"made with {packages}" + (f" (commits {', '.join(sorted(made))})" if any(made := found - {""}) else "") + "."
        for packages, found in sorted(commits.items())
        if packages
    ]


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


def time_table(results: Results, split: str) -> Table | None:
    """Mean seconds of training over seeds or folds; None where the split was not run."""
    found = results.methods(split=split)
    if not found:
        return None
    known = [key for key in (names.SYNTHETIC_METHODS if split == "folds" else names.REAL_METHODS) if key in found]
    others = sorted(found - set(known), key=lambda key: (is_ablation(*key), key))
    title, repetitions = ("synthetic series", "folds") if split == "folds" else (f"split `{split}`", "seeds")
    return Table(
        title=f"Training times, {title}",
        columns=("method", *map(names.dataset_title, SPLITS[split])),
        rows=[
            TableRow(names.method_title(key), tuple(_cell(results, split, name, key) for name in SPLITS[split]))
            for key in known + others
        ],
        notes=(f"Minutes and seconds of one training, mean over {repetitions}.",),
    )


def _cell(results: Results, split: str, dataset: str, method: MethodKey) -> Cell:
    # A cell's two tasks share one training, and both rows say how long it took.
    rows = results.select(split=split, dataset=dataset, method=method)
    if not rows:
        return MISSING
    seconds = {row.repetition: float(row.seconds["fit"]) for row in rows if row.seconds.get("fit") is not None}
    return text_cell(clock(sum(seconds.values()) / len(seconds))) if seconds else EMPTY


def clock(seconds: float) -> str:
    """Minutes and seconds; tenths where a minute is far."""
    if seconds < 9.95:
        return f"0:0{seconds:.1f}"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
