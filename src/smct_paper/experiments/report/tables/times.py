"""How long training took."""

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report import names
from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, text_cell
from smct_paper.experiments.report.results import MethodKey, Results

SPLITS = {"folds": names.SYNTHETIC_DATASETS, "chronological": REAL_DATASETS, "paper": REAL_DATASETS}


def time_table(results: Results, split: str) -> Table | None:
    """Mean seconds of training over seeds or folds; None where the split was not run."""
    found = results.methods(split=split)
    if not found:
        return None
    known = [key for key in (names.SYNTHETIC_METHODS if split == "folds" else names.REAL_METHODS) if key in found]
    others = sorted(found - set(known), key=lambda key: (names.is_ablation(key), key))
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
