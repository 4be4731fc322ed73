"""The demonstration: a model beside the best possible one, and a small panel of series from table to report.

known_distribution.py   trains on data whose true distribution is known, and compares the learned one with it
simulated_panel.py      thirty monthly series, made by a random number generator
seasonal_naive.py       what the forecasts of the panel are compared with
panel.py                fits the panel, scores its last year, draws it, writes the model and the report page
"""

import json
from pathlib import Path

from rich.console import Console

from smct_paper.demo.known_distribution import run_known_distribution


def run_demo(
    out: Path,
    *,
    dataset: str = "model1",
    epochs: int = 10,
    n_particles: int = 10,
    steps: int | None = None,
    seed: int = 0,
    console: Console,
) -> dict[str, dict[str, dict[str, float]]]:
    """Both parts of the demonstration, into the folder `out`; the panel's is left out where pandas is missing.

    Args:
        out: folder for scores.json, the pictures, the panel, its model and the report page.
        dataset: data whose distribution is known: "model1", "model2" or "model3".
        epochs: passes over their training sequences.
        n_particles: particles in that training.
        steps: batches of each stage of the panel's training; None: the forecaster's own number.
        seed: of data, weights and training.
        console: where tables are printed.

    Returns:
        The scores of each part, by method and metric: what scores.json holds.
    """
    out.mkdir(parents=True, exist_ok=True)
    console.rule("[bold]1. Data whose distribution is known", align="left")
    known = run_known_distribution(
        out, dataset=dataset, epochs=epochs, n_particles=n_particles, seed=seed, console=console
    )
    scores = {dataset: known}
    console.rule("[bold]2. A table of thirty series", align="left")
    try:
        from smct_paper.demo.panel import run_panel
    except ImportError:
        console.print("left out: it needs pandas (pip install pandas)")
    else:
        scores["panel"] = run_panel(out, steps=steps, seed=seed, console=console)
    (out / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
    return scores
