"""What encoders, heads, distributions and gaps cost: training step and forecast, as ratios to the paper's model.

    python -m benchmarks.parts --out docs/results/parts.json

Batches of 32 sequences of 24 steps, d = 32, 10 particles; forecasts of 200 paths and 12 steps for 16 sequences.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import em_step, training_step

BASE = "the paper's model (linear encoder, one head, Gaussian)"
VARIANTS = {
    BASE: {},
    "4 heads": {"n_heads": 4},
    "encoder: 1 transformer layer": {"encoder": "transformer"},
    "encoder: LSTM": {"encoder": "lstm"},
    "encoder: GRU": {"encoder": "gru"},
    "encoder: 2 convolutions": {"encoder": "convolution", "encoder_layers": 2},
    "distribution: heteroscedastic": {"observation": "heteroscedastic"},
    "distribution: Student-t": {"observation": "student_t"},
    "distribution: negative binomial": {"observation": "negative_binomial"},
    "distribution: categorical, 20 classes": {"observation": "categorical", "n_classes": 20},
    "a fifth of the values missing": {},
    "a fifth missing, LSTM": {"encoder": "lstm"},
}


def candidates(name, settings):
    generator = torch.Generator().manual_seed(0)
    model = SMCTransformer(SMCTransformerConfig(**settings), generator=0)
    optimiser = torch.optim.Adam(model.gradient_parameters().values())
    x = torch.randint(20, (32, 25, 1), generator=generator).float()
    if "missing" in name:
        x[:, 1:][torch.rand(x[:, 1:].shape, generator=generator) < 0.2] = float("nan")

    def train():
        optimiser.zero_grad()
        step = training_step(model, x, generator=1)
        (-step.objective.mean()).backward()
        optimiser.step()
        em_step(model, step.statistics, 0.01)

    return train, lambda: model.forecast(x[:16, :13], 12, n_samples=200, generator=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("docs/results/parts.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    functions = {name: candidates(name, settings) for name, settings in VARIANTS.items()}
    training = median_seconds({name: pair[0] for name, pair in functions.items()}, options.repetitions)
    forecast = median_seconds({name: pair[1] for name, pair in functions.items()}, options.repetitions)
    rows = [
        {
            "name": name,
            "training_step": round(training[name] / training[BASE], 2),
            "forecast": round(forecast[name] / forecast[BASE], 2),
        }
        for name in VARIANTS
    ]
    options.out.write_text(json.dumps(rows, indent=2) + "\n")
    table = Table("variant", "training step", "forecast")
    for row in rows:
        table.add_row(row["name"], f"{row['training_step']:.2f}", f"{row['forecast']:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
