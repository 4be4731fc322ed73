"""How the time of a training step grows: slope of log time on log size."""

import math

import torch

from benchmarks.rows import row
from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer
from smc_transformer.learning.step import accumulate_gradients

AXES = {
    # what grows: (sizes as (batch, particles, steps), window, most)
    "particles": ([(32, n, 24) for n in (20, 40, 80, 160)], None, 1.1),
    "batch": ([(n, 20, 24) for n in (32, 64, 128, 256)], None, 1.1),
    "steps, window 32": ([(8, 10, n) for n in (64, 128, 256, 512)], 32, 1.1),
    "steps, no window": ([(8, 10, n) for n in (64, 128, 256, 512)], None, 2.0),
}
TINY_SIZES = [(2, 3, 4), (2, 3, 8)]


def measure(*, tiny=False):
    rows = []
    for name, (sizes, window, most) in AXES.items():
        steps = {size: training_step(*size, window) for size in (TINY_SIZES if tiny else sizes)}
        times = median_seconds(steps, repetitions=2 if tiny else 7)
        volumes = [math.log(math.prod(size)) for size in times]
        slope = slope_of(volumes, [math.log(seconds) for seconds in times.values()])
        span = f"{min(times)} to {max(times)}"
        rows.append(row(f"growth with {name}: slope of log time on log size", span, slope, at_most=most))
    return rows


def training_step(batch, n_particles, n_steps, window):
    x = torch.randn(batch, n_steps + 1, 1, generator=torch.Generator().manual_seed(0))
    model = SMCTransformer.from_settings({"n_particles": n_particles, "window": window}, generator=0)
    return lambda: accumulate_gradients(model, x, batch * n_steps)


def slope_of(x, y):
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)
