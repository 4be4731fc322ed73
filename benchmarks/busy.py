"""A busy machine: a training step and a filter beside a process that keeps one core busy, as ratios to the idle time.

    python -m benchmarks.busy

With two cores and two threads, the best that a fair scheduler allows is a ratio of 1.5, and one thread alone has 2.
"""

import multiprocessing
import time

import torch

from benchmarks.everyday import FORECASTER, step_of, walks
from benchmarks.rows import row
from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer
from smc_transformer.inference.filter import particle_filter
from smc_transformer.kernels import threads_for_kernels
from smc_transformer.learning.goals import Likelihood


def keep_busy():
    """Count, for ever."""
    number = 0
    while True:
        number += 1


def candidates(batch, n_particles, n_steps):
    model = SMCTransformer.from_settings(FORECASTER, generator=0)
    settings, x = model.settings(n_particles), walks(batch, n_steps + 1)
    return {
        "training step": step_of(Likelihood(), x, **FORECASTER),
        "filter": lambda: particle_filter(model, x, settings),
    }


def measure(*, tiny=False):
    size, repetitions = ((2, 3, 4), 2) if tiny else ((32, 10, 72), 25)
    functions = candidates(*size)
    with threads_for_kernels():
        idle = median_seconds(functions, repetitions, pause=0)
        competitor = multiprocessing.get_context("spawn").Process(target=keep_busy, daemon=True)
        competitor.start()
        try:
            time.sleep(0.1 if tiny else 3)  # until it has started
            busy = median_seconds(functions, repetitions, pause=0)
        finally:
            competitor.kill()
            competitor.join()
    return [row(f"{name}: one core busy / idle", size, busy[name] / idle[name], at_most=2.2) for name in functions]


if __name__ == "__main__":
    torch.set_num_threads(2)
    for found in measure():
        print(f"{found['name']}: {found['ratio']} ({found['target']})")
