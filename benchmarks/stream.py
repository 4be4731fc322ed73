"""One stream, 100 particles, window 64: time per observation around the 100th and the 10,000th step, and memory.

python -m benchmarks.stream
"""

import statistics
from time import perf_counter

import torch
from rich.console import Console

from smc_transformer import SMCTransformer, SMCTransformerConfig

N_STEPS, AROUND = 10_050, 50


def main() -> None:
    torch.set_num_threads(1)
    model = SMCTransformer(SMCTransformerConfig(window=64), generator=0)
    state = model.init_state(1, n_particles=100, generator=1)
    generator = torch.Generator().manual_seed(2)
    times = []
    for _ in range(N_STEPS):
        x = torch.randn(1, 1, generator=generator)
        started = perf_counter()
        state, _ = model.observe(state, x)
        times.append(perf_counter() - started)
    early = statistics.median(times[100 - AROUND : 100 + AROUND])
    late = statistics.median(times[10_000 - AROUND : 10_000 + AROUND])
    Console().print(
        f"{1000 * early:.2f} ms at step 100, {late / early:.2f} times that at step 10,000; "
        f"{state.population.keys.shape[2]} slots held"
    )


if __name__ == "__main__":
    main()
