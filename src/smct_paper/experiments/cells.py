"""One cell: load the data, train, score both tasks."""

from dataclasses import asdict
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any

from smc_transformer.support.as_json import plain
from smct_paper.experiments.grid import FOLDS, Cell
from smct_paper.experiments.profiles import Profile

DATA_SEED = 0
"""How data are drawn and shuffled is part of the data set: seeds repeat the training, not the split."""


def run_cell(cell: Cell, profile: Profile, data_dir: Path | None) -> dict[str, Any]:
    """Train and evaluate; returns the record that is stored.

    Raises:
        ArithmeticError: a score is not a finite number.
    """
    # Imported here, in a worker that has set its number of threads.
    from smct_paper.datasets import load_windows
    from smct_paper.evaluation import evaluate
    from smct_paper.experiments.methods import build_method

    fold = {"fold": cell.seed} if cell.split == FOLDS else {}
    data = load_windows(cell.dataset, split=cell.split, seed=DATA_SEED, data_dir=data_dir, **fold)
    method = build_method(cell, profile)

    started = monotonic()
    training = method.fit(data, seed=cell.seed)
    trained = monotonic()
    tasks = evaluate(method, data, n_windows=profile.n_windows, n_samples=profile.n_samples, seed=cell.seed)
    finished = monotonic()

    return plain(
        {
            "training": training,
            "seconds": {"fit": round(trained - started, 3), "evaluate": round(finished - trained, 3)},
            "tasks": {task: _finite(task, asdict(scores)) for task, scores in tasks.items()},
        }
    )


def _finite(task: str, scores: dict[str, Any]) -> dict[str, Any]:
    """None means that the method does not have the score; a score that overflowed must not become None as well."""
    broken = {name: value for name, value in scores["metrics"].items() if value is not None and not isfinite(value)}
    if broken:
        listed = ", ".join(f"{name} is {value}" for name, value in broken.items())
        raise ArithmeticError(f"{task} scores are not finite: {listed}")
    return scores
