"""Real data whose next step has two modes: what the appliances of a house will use in the next ten minutes.

    python -m benchmarks.two_modes --seeds 3 --out docs/results/two_modes.json --figure docs/results/two_modes.png

While something is on, it may stay at 100 to 200 Wh or begin to heat at 300 to 500 Wh, and little lies between: a
distribution with one mode has to cover both. The logarithm of `Appliances` (data set `energy`, rows cut in time as in
the experiments, the rounding to 10 Wh undone by uniform noise) is modelled with one network and several observation
models: with latent noise the predictive distribution is a mixture over particles, without it one Gaussian or Student-t
whose location and scale the network gives. Every run is written as it finishes, and a run that is in the file is not
repeated.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from smc_transformer import SMCTransformer
from smc_transformer.inference.filter import particle_filter
from smc_transformer.learning import Likelihood, Stage
from smc_transformer.predictive import Mixture
from smc_transformer.support.randomness import as_generator
from smct_paper.datasets.energy import FILE, read_energy
from smct_paper.datasets.files import locate_file
from smct_paper.datasets.splits import cuts

ROWS, STRIDE = 24, 4
"""Steps of a window, and rows between the beginnings of training windows."""
ROUNDING = 10.0
TEST_PARTICLES = 256
NETWORK = {"n_inputs": 3, "n_targets": 1, "encoder": "gru", "input_changes": True, "predict_change": True, "window": 12}
COMPETING = {"initial_observation_variance": 0.1, "n_particles": 20}
VARIANTS: dict[str, dict[str, Any]] = {
    "one mode: Gaussian, constant scale": {"observation": "gaussian", "initial_latent_variance": 0.0},
    "one mode: Gaussian, scale by the network": {"observation": "heteroscedastic", "initial_latent_variance": 0.0},
    "one mode: Student-t, scale by the network": {"observation": "student_t", "initial_latent_variance": 0.0},
    "latent noise, Gaussian, constant scale": {"observation": "gaussian", **COMPETING},
    "latent noise, Gaussian, scale by the network": {"observation": "heteroscedastic", **COMPETING},
    "latent noise, Student-t, scale by the network": {"observation": "student_t", **COMPETING},
}
MODAL = "latent noise, Gaussian, constant scale"
"""The variant in which only the latents can give a distribution another shape than that of a Gaussian."""
RANGE = (150.0, 200.0)
"""Wh in the last ten minutes, after which the next have two modes in the training rows."""
LEAST_DIP = 0.1
"""Two maxima of a density are two modes if it falls between them by this share of the lower one,"""
LEAST_HEIGHT = 0.1
"""and the lower one has this share of the height of the other."""


def load() -> tuple[dict[str, Tensor], float, float]:
    """Windows of training, validation and test rows, and the mean and deviation by which the logarithm is scaled."""
    table = read_energy(locate_file(FILE, None))
    used = table.values[:, table.columns.index("Appliances")]
    rounding = np.random.default_rng(0).uniform(-ROUNDING / 2, ROUNDING / 2, len(used))
    logs = np.log(used + rounding)
    first, second = cuts(len(logs))
    mean, deviation = float(logs[:first].mean()), float(logs[:first].std())
    midnight = table.times.astype("datetime64[D]")
    hours = 2 * np.pi * (table.times - midnight).astype("timedelta64[s]").astype(float) / 86400
    rows = np.stack(((logs - mean) / deviation, np.sin(hours), np.cos(hours)), axis=1).astype(np.float32)
    parts = {"train": (0, first, STRIDE), "validation": (first, second, ROWS), "test": (second, len(logs), ROWS)}
    windows = {
        name: torch.from_numpy(np.stack([rows[start : start + ROWS + 1] for start in range(low, high - ROWS, stride)]))
        for name, (low, high, stride) in parts.items()
    }
    return windows, mean, deviation


def run(settings: dict[str, Any], seed: int, steps: int) -> tuple[dict[str, Any], Tensor]:
    """Train by the likelihood: scores of the scaled logarithm on held-out rows, and the densities of test rows."""
    windows, mean, deviation = load()
    model = SMCTransformer.from_settings({**NETWORK, **settings}, generator=seed)
    stage = Stage(steps, validations=15, batch_size=32, learning_rate=4e-3, warmup=0.3, em_offset=200, patience=5)
    model.encoder.set_scales_(windows["train"])  # type: ignore[operator]
    stage.trainer(model, Likelihood(), seed).fit(windows["train"], windows["validation"])
    found = {}
    for name in ("validation", "test"):
        mixture = predictive(model, windows[name])
        found[f"{name}_nll"] = -float(mixture.log_prob(windows[name][:, 1:, :1]).mean())
        crps = mixture.crps(windows[name][:, 1:, :1])
        found[f"{name}_crps"] = float(crps.mean())
    parts = mixture.variance_parts()
    found["between_particles"] = float((parts.between / (parts.between + parts.within)).mean())
    return found, densities(mixture, points(mean, deviation), (len(windows["test"]), ROWS))


def points(mean: float, deviation: float) -> Tensor:
    """The grid of densities, in scaled logarithms: 25 to 1100 Wh."""
    return (torch.linspace(np.log(25.0), np.log(1100.0), 140) - mean) / deviation


@torch.no_grad()
def predictive(model: SMCTransformer, x: Tensor) -> Mixture:
    """The one-step distributions of windows."""
    return particle_filter(model, x, model.settings(TEST_PARTICLES), as_generator(0)).predictive


@torch.no_grad()
def densities(mixture: Mixture, grid: Tensor, shape: tuple[int, int]) -> Tensor:
    """The density of each step of each window over a grid, (window, step, point)."""
    return torch.stack([mixture.log_prob(torch.full((*shape, 1), float(point))).exp() for point in grid], dim=-1)


def dips(density: Tensor) -> Tensor:
    """How far a density falls between two separated maxima, as a share of the lower one; 0 with one.

    A maximum lower than `LEAST_HEIGHT` of the highest is measured by that.
    """
    rising = torch.cummax(density, dim=-1).values
    falling = torch.cummax(density.flip(-1), dim=-1).values.flip(-1)
    lower = torch.minimum(rising, falling)  # the lower one of the maxima on both sides of each point
    least = LEAST_HEIGHT * density.amax(dim=-1, keepdim=True)
    return ((lower - density) / torch.maximum(lower, least)).amax(dim=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=Path("docs/results/two_modes.json"))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--only", nargs="+", type=int, help="numbers of the variants to run, from 0")
    parser.add_argument("--densities", type=Path, default=Path("results/two_modes"), help="folder, for the figure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    done = {(row["variant"], row["seed"], row["steps"]) for row in rows if "variant" in row}
    for seed in range(options.seeds):
        for number, (name, settings) in enumerate(VARIANTS.items()):
            if (name, seed, options.steps) in done or number not in (options.only or range(len(VARIANTS))):
                continue
            found, density = run(settings, seed, options.steps)
            options.densities.mkdir(parents=True, exist_ok=True)
            np.save(options.densities / f"{number}-{seed}.npy", density.half().numpy())
            rows.append({"variant": name, "seed": seed, "steps": options.steps, **found})
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    table = Table("variant", "validation NLL", "test NLL", "test CRPS", "between particles")
    for name in VARIANTS:
        mine = [row for row in rows if row["variant"] == name and row["steps"] == options.steps]
        keys = ("validation_nll", "test_nll", "test_crps", "between_particles")
        if mine:
            table.add_row(name, *(" ".join(f"{row[key]:.3f}" for row in mine) for key in keys))
    Console(width=140).print(table)
    if options.figure is not None:
        draw(rows, options)


def draw(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Densities with deep dips on test rows, and the mean after 150 to 200 Wh.

    Of the best variants with and without latent noise, by validation, and of `MODAL`.
    """
    from smct_paper.experiments.report.figures.style import FAINT, INK, SMC, TRUTH, explain, panels, save, tidy

    mine = [row for row in rows if row["seed"] == 0 and row["steps"] == options.steps]
    names = list(VARIANTS)
    chosen = [
        min((row for row in mine if row["variant"].startswith(kind)), key=lambda row: row["validation_nll"])["variant"]
        for kind in ("latent", "one mode")
    ] + [MODAL]
    windows, mean, deviation = load()
    x = windows["test"]
    grid = points(mean, deviation)
    files = [options.densities / f"{names.index(name)}-0.npy" for name in chosen]
    found = [torch.from_numpy(np.load(file)).float() for file in files]
    dip = dips(found[2])
    watt_hours = torch.exp(x[..., 0] * deviation + mean)
    last, following = watt_hours[:, :-1], watt_hours[:, 1:]
    after = (last >= RANGE[0]) & (last < RANGE[1])
    deepest = [int(place) for place in dip.flatten().argsort(descending=True)[:40:20]]
    inks = (SMC, TRUTH, FAINT)
    figure, axes = panels(3, 3, 3.2, 2.6)
    values = np.exp(grid.numpy() * deviation + mean)
    for place, panel in zip(deepest, axes, strict=False):
        for density, ink in zip(found, inks, strict=True):
            panel.plot(values, density.flatten(0, 1)[place], color=ink)
        panel.axvline(float(following.flatten()[place]), color=INK, linestyle=":")
        panel.set_title(f"after {float(last.flatten()[place]):.0f} Wh", fontsize=9)
    for density, ink, label in zip(found, inks, chosen, strict=True):
        axes[2].plot(values, density[after].mean(dim=0), color=ink, label=label)
    bins = np.exp(np.linspace(np.log(25.0), np.log(1100.0), 22))
    scaled = (np.log(bins) - mean) / deviation
    counts, _ = np.histogram(following[after].numpy(), bins)
    axes[2].stairs(counts / counts.sum() / np.diff(scaled), bins, color=INK, linewidth=0.8, label="observed")
    axes[2].set_title(f"mean after 150 to 200 Wh, {int(after.sum())} test rows", fontsize=9)
    for panel in axes:
        panel.set_xscale("log")
        panel.set_xticks([50, 100, 200, 400, 800], ["50", "100", "200", "400", "800"])
        panel.minorticks_off()
        panel.set_xlabel("Wh in the next ten minutes", fontsize=8)
        tidy(panel)
    explain(figure, *axes[2].get_legend_handles_labels()[0])
    save(figure, options.figure)
    share = float((dip > LEAST_DIP).double().mean())
    share_after = float((dip[after] > LEAST_DIP).double().mean())
    print(f"{MODAL}: two modes in {share:.1%} of the test steps, {share_after:.1%} after 150 to 200 Wh")


if __name__ == "__main__":
    main()
