"""How long training took."""

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Part, Table, TableRow
from smct_paper.experiments.report.names import (
    REAL_METHODS,
    SYNTHETIC_DATASETS,
    SYNTHETIC_METHODS,
    dataset_title,
    is_ablation,
    method_title,
)
from smct_paper.experiments.report.results import MethodKey, Results

SPLITS = {"folds": SYNTHETIC_DATASETS, "chronological": REAL_DATASETS, "paper": REAL_DATASETS}
_KNOWN = {"folds": SYNTHETIC_METHODS, "chronological": REAL_METHODS, "paper": REAL_METHODS}


def time_table(results: Results, split: str) -> Table | None:
    """Mean seconds of training over seeds or folds; None where the split was not run."""
    found = results.methods(split=split)
    if not found:
        return None
    known = [key for key in _KNOWN[split] if key in found]
    others = sorted((key for key in found if key not in known), key=lambda key: (is_ablation(key), key))
    rows = [
        TableRow(method_title(key), tuple(_cell(results, split, name, key) for name in SPLITS[split]))
        for key in known + others
    ]
    title = "synthetic series" if split == "folds" else f"split `{split}`"
    return Table(
        title=f"Training times, {title}",
        columns=("method", *map(dataset_title, SPLITS[split])),
        rows=tuple(rows),
        notes=(f"Minutes and seconds of one training, mean over {'folds' if split == 'folds' else 'seeds'}.",),
    )


def _cell(results: Results, split: str, dataset: str, method: MethodKey) -> Cell:
    # A cell's two tasks share one training, and both rows say how long it took.
    rows = results.select(split=split, dataset=dataset, method=method)
    if not rows:
        return MISSING
    seconds = {row.repetition: float(row.seconds["fit"]) for row in rows if row.seconds.get("fit") is not None}
    return Cell((Part(clock(sum(seconds.values()) / len(seconds))),)) if seconds else EMPTY


def clock(seconds: float) -> str:
    """Minutes and seconds; tenths where a minute is far."""
    if seconds < 9.95:
        return f"0:0{seconds:.1f}"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
