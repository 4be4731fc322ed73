"""How noisy the gradient is: pathwise and score, fewer trajectories than particles, antithetic noise, other smoothers.

    python -m benchmarks.gradients --out docs/results/gradients.json

The figure is the variance of the gradient over repeated training steps on one batch (32 sequences of 24 steps of the
model's data), summed over parameters, divided by the squared length of its mean. One over it is how many such batches
make an average as long as its error.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer
from smc_transformer.learning import fit, power_step_size, training_step
from smc_transformer.nn import Noise
from smc_transformer.nn.attention import StochasticSelfAttention
from smct_paper.datasets import SYNTHETIC

N_PARTICLES = 10


def gradient(model, x, seed, **options):
    model.zero_grad()
    step = training_step(model, x, generator=seed, **options)
    (-step.objective.mean()).backward()
    parameters = model.gradient_parameters().values()
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters])


def relative_variance(model, x, repeats, **options):
    gradients = torch.stack([gradient(model, x, seed, **options) for seed in range(repeats)])
    mean = gradients.mean(dim=0)
    variance = gradients.var(dim=0).sum()
    return float(variance / (mean.square().sum() - variance / repeats).clamp(min=1e-12))


def antithetic(self, batch, n_particles, n_steps, generator=None):
    """Half of the particles with noise of their own, the other half with its negative."""
    half = plain_noise(self, batch, -(-n_particles // 2), n_steps, generator)
    return Noise(*(torch.cat((eps, -eps), dim=1)[:, :n_particles] for eps in half))


plain_noise = StochasticSelfAttention.draw_noise


def models(tiny):
    for data, settings in (("model1", {}), ("model3", {"initial_observation_variance": 0.1})):
        x = SYNTHETIC[data].sample(36 if tiny else 432, 24, generator=0)
        for epochs in (0, 1 if tiny else 8):
            model = SMCTransformer.from_settings({"n_particles": N_PARTICLES, **settings}, generator=0)
            if epochs:
                fit(model, x[32:], epochs=epochs, em_step_size=power_step_size(offset=200), progress=False)
            yield f"{data}, {'trained' if epochs else 'fresh'}", model, x[:32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/results/gradients.json"))
    parser.add_argument("--tiny", action="store_true", help="only check that it runs")
    options = parser.parse_args()
    repeats, repetitions = (2, 1) if options.tiny else (60, 15)
    torch.set_num_threads(1)
    rows = []
    for name, model, x in models(options.tiny):
        row = {"model": name, "pathwise": relative_variance(model, x, repeats)}
        row["pathwise, 3 trajectories"] = relative_variance(model, x, repeats, n_trajectories=3)
        StochasticSelfAttention.draw_noise = antithetic
        row["pathwise, antithetic"] = relative_variance(model, x, repeats)
        StochasticSelfAttention.draw_noise = plain_noise
        model.learning = replace(model.learning, gradient="score")
        row["score"] = relative_variance(model, x, repeats)
        model.learning = replace(model.learning, gradient="pathwise")
        for smoother in ("fixed_lag", "backward"):
            inference = replace(model.inference, smoother=smoother)
            row[smoother] = relative_variance(model, x, repeats, inference=inference)
        rows.append(row)
        options.out.write_text(json.dumps(rows, indent=2) + "\n")
    times = median_seconds(
        {str(n): lambda n=n: gradient(model, x, 0, n_trajectories=n) for n in (None, 3)}, repetitions=repetitions
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
