"""One stream, 100 particles, window 64: time per observation around the 10,000th and the 100th step, and memory."""

import statistics
from time import perf_counter

import torch

from benchmarks.rows import row
from smc_transformer import SMCTransformer, SMCTransformerConfig

EARLY, LATE, AROUND = 100, 10_000, 50


def measure(*, tiny=False):
    late = 200 if tiny else LATE
    model = SMCTransformer(SMCTransformerConfig(window=64), generator=0)
    state = model.init_state(1, n_particles=100, generator=1)
    generator = torch.Generator().manual_seed(2)
    times, held = [], []
    for _ in range(late + AROUND):
        x = torch.randn(1, 1, generator=generator)
        started = perf_counter()
        state, _ = model.observe(state, x)
        times.append(perf_counter() - started)
        particles = state.particles
        held.append(particles.keys.nbytes + particles.values.nbytes + particles.trajectories.nbytes)
    at_early, at_late = (statistics.median(times[at - AROUND : at + AROUND]) for at in (EARLY, late))
    size = f"100 particles, window 64, {1000 * at_early:.2g} ms an observation"
    return [
        row(f"stream: time at observation {late} / at {EARLY}", size, at_late / at_early, at_most=1.1),
        row(f"stream: memory at observation {late} / at {EARLY}", size, held[late] / held[EARLY], at_most=1),
    ]
