"""How noisy the gradient is: pathwise and score, fewer trajectories than particles, antithetic noise, other smoothers.

    python -m benchmarks.gradients --out docs/results/gradients.json

The figure is the variance of the gradient over repeated training steps on one batch (32 sequences of 24 steps of the
model's data), summed over parameters, divided by the squared length of its mean. One over it is how many such batches
make an average as long as its error.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import fit, power_step_size, training_step
from smc_transformer.nn import Noise
from smc_transformer.nn.attention import StochasticSelfAttention
from smct_paper.datasets import SYNTHETIC

N_PARTICLES, REPEATS = 10, 60


def gradient(model, x, seed, **options):
    model.zero_grad()
    step = training_step(model, x, generator=seed, **options)
    (-step.objective.mean()).backward()
    parameters = model.gradient_parameters().values()
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters])


def relative_variance(model, x, **options):
    gradients = torch.stack([gradient(model, x, seed, **options) for seed in range(REPEATS)])
    mean = gradients.mean(dim=0)
    variance = gradients.var(dim=0).sum()
    return float(variance / (mean.square().sum() - variance / REPEATS).clamp(min=1e-12))


def antithetic(self, batch, n_particles, n_steps, generator=None):
    """Half of the particles with noise of their own, the other half with its negative."""
    half = plain_noise(self, batch, -(-n_particles // 2), n_steps, generator)
    return Noise(*(torch.cat((eps, -eps), dim=1)[:, :n_particles] for eps in half))


plain_noise = StochasticSelfAttention.draw_noise


def models():
    for data, settings in (("model1", {}), ("model3", {"initial_observation_variance": 0.1})):
        x = SYNTHETIC[data].sample(432, 24, generator=0)
        for epochs in (0, 8):
            model = SMCTransformer.from_settings({"n_particles": N_PARTICLES, **settings}, generator=0)
            if epochs:
                fit(model, x[32:], epochs=epochs, em_step_size=power_step_size(offset=200), progress=False)
            yield f"{data}, {'trained' if epochs else 'fresh'}", model, x[:32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/gradients.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, model, x in models():
        row = {"model": name, "pathwise": relative_variance(model, x)}
        row["pathwise, 3 trajectories"] = relative_variance(model, x, n_trajectories=3)
        StochasticSelfAttention.draw_noise = antithetic
        row["pathwise, antithetic"] = relative_variance(model, x)
        StochasticSelfAttention.draw_noise = plain_noise
        plain = model.config
        for field, value in (("gradient", "score"), ("smoother", "fixed_lag"), ("smoother", "backward")):
            model.config = SMCTransformerConfig.from_dict({**plain.to_dict(), field: value})
            row[value] = relative_variance(model, x)
        model.config = plain
        rows.append(row)
        options.out.write_text(json.dumps(rows, indent=2) + "\n")
    times = median_seconds(
        {str(n): lambda n=n: gradient(model, x, 0, n_trajectories=n) for n in (None, 3)}, repetitions=15
    )
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else value for value in row.values()))
    console = Console(width=140)
    console.print(table)
    console.print(
        f"a step with 3 trajectories takes {times['3'] / times['None']:.2f} times as long as with {N_PARTICLES}"
    )


if __name__ == "__main__":
    main()
