"""Learning a bimodal distribution (Model III): latent covariances by EM or gradient, and how S_obs starts and moves.

    python -m benchmarks.bimodal --epochs 12 --seeds 3 --out docs/results/bimodal.json

Every run is written as it finishes, and a run that is already in the file is not repeated.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from smc_transformer import SMCTransformer
from smc_transformer.learning import Trainer, constant, power_step_size, warmup_cosine
from smct_paper.datasets import SYNTHETIC, split_sequences

N_PARTICLES, TEST_PARTICLES, BATCH_SIZE = 20, 256, 16
VARIANTS = {
    "latent S by EM, S_obs from 0.5, eta = p^-0.6 (paper)": {"noise_learning": "em"},
    "latent S by gradient, S_obs from 0.5, eta = p^-0.6": {"noise_learning": "gradient"},
    "latent S by EM, S_obs from 0.1, eta = (p + 200)^-0.6": {
        "noise_learning": "em",
        "initial_observation_variance": 0.1,
        "offset": 200,
    },
    "latent S by gradient, S_obs from 0.1, eta = (p + 200)^-0.6": {
        "noise_learning": "gradient",
        "initial_observation_variance": 0.1,
        "offset": 200,
    },
    "the same, learning rate up for half of the steps, then down": {
        "noise_learning": "gradient",
        "initial_observation_variance": 0.1,
        "offset": 200,
        "warm_up": 0.5,
    },
}


def run(settings: dict, epochs: int, seed: int) -> dict:
    settings = dict(settings)
    offset, warm_up = settings.pop("offset", 0), settings.pop("warm_up", None)
    source = SYNTHETIC["model3"]
    split = split_sequences(source.sample(1000, 24, generator=seed))
    model = SMCTransformer.from_settings({"n_particles": N_PARTICLES, **settings}, generator=seed)
    n_steps = epochs * -(-len(split.train) // BATCH_SIZE)
    trainer = Trainer(
        model,
        epochs=epochs,
        batch_size=BATCH_SIZE,
        learning_rate=5e-3,
        em_step_size=power_step_size(offset=offset),
        schedule=constant() if warm_up is None else warmup_cosine(n_steps, int(warm_up * n_steps)),
        seed=seed,
        progress=False,
    )
    trainer.fit(split.train, split.validation)
    test = source.sample(300, 24, generator=1000 + seed)
    result = model.filter(test, TEST_PARTICLES, generator=0)
    parts = result.predictive.variance_parts()
    excess = source.predictive(test).log_prob(test[:, 1:]) - result.log_increments
    return {
        "excess_nll": float(excess.mean()),
        "between_share": float((parts.between / (parts.between + parts.within)).mean()),
        "latent_variances": {
            name: c.matrix().diagonal().mean().item() for name, c in model.latent_covariances().items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/bimodal.json"))
    parser.add_argument("--only", nargs="+", type=int, help="numbers of the variants to run, from 0")
    options = parser.parse_args()
    chosen = {name: VARIANTS[name] for i, name in enumerate(VARIANTS) if options.only is None or i in options.only}
    torch.set_num_threads(1)
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    done = {(row["variant"], row["epochs"], row["seed"]) for row in rows}
    for seed in range(options.seeds):
        for name, settings in chosen.items():
            if (name, options.epochs, seed) not in done:
                rows.append({"variant": name, "epochs": options.epochs, "seed": seed})
                rows[-1].update(run(settings, options.epochs, seed))
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(rows, indent=2) + "\n")
    table = Table("variant", "NLL above exact, by seed", "median", "between-particle share")
    for name in chosen:
        mine = [row for row in rows if row["variant"] == name and row["epochs"] == options.epochs]
        excess = [row["excess_nll"] for row in mine]
        shares = statistics.median(row["between_share"] for row in mine)
        table.add_row(name, " ".join(f"{e:.3f}" for e in excess), f"{statistics.median(excess):.3f}", f"{shares:.0%}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
