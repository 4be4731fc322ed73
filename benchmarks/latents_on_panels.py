"""What the latents earn on the panels: the default forecaster, and the same with zero latent noise, on validation rows.

    python -m benchmarks.latents_on_panels --out docs/results/latents_on_panels.json
    python -m benchmarks.latents_on_panels --only hospital --seeds 0 --out results/latents_on_panels.json

Test rows are dropped, and the horizon before them is forecast and scored as in `benchmarks.panels`. The same rows are
then given to the forecaster one after the other: the mean log density of a value given all before it, in nats. Its
zero depends on the unit of a panel, so only differences mean something. Every run is written as it finishes, and one
that is in the file is not repeated.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.panels.forecast import scores
from benchmarks.panels.methods import smc
from benchmarks.panels.panels import PANELS, Split
from benchmarks.panels.running import load_split
from benchmarks.panels.stopwatch import Stopwatch

VARIANTS: dict[str, dict[str, Any]] = {
    "latent noise": {},
    "no latent noise": {"config": {"initial_latent_variance": 0.0}},
}
SCORES = {"wql": 4, "mase": 3, "coverage_80": 3, "coverage_95": 3, "one_step_log_density": 3}


def run(split: Split, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """The scores of a forecaster that is fitted with these settings."""
    stopwatch = Stopwatch()
    with stopwatch.part("fit"):
        forecaster = smc.fitted(split, seed, settings)
    found = scores(split, smc.forecast(split, forecaster, stopwatch))
    told = forecaster.update(split.test)["log_density"].to_numpy()
    found["one_step_log_density"] = float(np.mean(told[np.isfinite(told)]))
    found["fit_processor_seconds"] = stopwatch.seconds["fit_processor_seconds"]
    return {name: value for name, value in found.items() if value is not None}


def show(rows: list[dict[str, Any]]) -> None:
    """All seeds, with latent noise and without."""
    table = Table("panel", "variant", *SCORES, title="on validation rows, seed by seed")
    for panel in dict.fromkeys(row["panel"] for row in rows):
        for name in VARIANTS:
            mine = [row for row in rows if row["panel"] == panel and row["variant"] == name]
            table.add_row(panel, name, *(" ".join(f"{row[key]:.{n}f}" for row in mine) for key, n in SCORES.items()))
    Console(width=160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PANELS, default=list(PANELS), metavar="PANEL", help="some panels")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("docs/results/latents_on_panels.json"))
    parser.add_argument("--data", type=Path, help="folder that has the folder panels")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    for panel in options.only:
        for seed in options.seeds:
            for name, settings in VARIANTS.items():
                asked = {"panel": panel, "seed": seed, "variant": name}
                if any(asked.items() <= row.items() for row in rows):
                    continue
                rows.append({**asked, **run(load_split(panel, 1, options.data), seed, settings)})
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(rows, indent=1) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
