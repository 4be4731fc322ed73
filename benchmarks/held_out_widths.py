"""Intervals by windows that chose the weights, and by windows that no stage of training has looked at.

    python -m benchmarks.held_out_widths --dataset stock --split paper --out docs/results/held_out_widths.json

The configuration `best` of the profile `quick`, with every second validation window alone to choose its weights by. The
noise is then widened by these windows, or by the others, until 95 % or 96 % intervals hold their share of them.
"""

import argparse
import copy
import json
from dataclasses import asdict, replace
from pathlib import Path

import torch

from smct_paper.datasets import Windows, load_windows
from smct_paper.evaluation import evaluate
from smct_paper.experiments.profiles import QUICK
from smct_paper.experiments.smc_method import SMCMethod
from smct_paper.experiments.smc_settings import smc_method

LEVELS = (0.95, 0.96)


def widths(method: SMCMethod, data: Windows, seed: int) -> dict[str, dict[str, float]]:
    """Multistep scores of test windows by what widened the noise: "chosen by 0.95", "held out 0.95", ..."""
    method.chosen = replace(method.chosen, widen_to=None)
    judges = {"chosen by": data.validation[::2], "held out": data.validation[1::2]}
    method.fit(replace(data, validation=judges["chosen by"]), seed=seed)
    trained, found = method.model, {"as trained": _scores(method, data)}
    for who, windows in judges.items():
        for level in LEVELS:
            method.model = copy.deepcopy(trained)
            factor = method.chosen.widen(
                method.model,
                windows / method.units,
                level,
                histories=(data.history,),
                n_scored=data.n_targets,
                n_halvings=6,
            )
            found[f"{who} {level}"] = {"factor": factor, **_scores(method, data)}
    return found


def _scores(method: SMCMethod, data: Windows) -> dict[str, float]:
    scores = evaluate(method, data, n_windows=QUICK.n_windows, n_samples=QUICK.n_samples)["multistep"]
    return {name: asdict(scores)["metrics"][name] for name in ("picp", "mpiw", "crps")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="stock")
    parser.add_argument("--split", default="paper")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/held_out_widths.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    for seed in range(options.seeds):
        name = f"{options.dataset}, {options.split}, seed {seed}"
        if name not in found:
            method = smc_method("best", options.dataset, "quick")
            found[name] = widths(method, load_windows(options.dataset, options.split), seed)
            options.out.write_text(json.dumps(found, indent=1) + "\n")
            print(name, json.dumps(found[name]), flush=True)


if __name__ == "__main__":
    main()
