"""A stream without end: a million observations in a row, with the time of a step and the memory at each tenth.

python -m benchmarks.long_stream [--observations 1000000]

One stream, 10 particles, a GRU with d_model 8, a window of 12. "Held" is what the state keeps: distinct storages of
tensors, found by walking through it, and their bytes. "Resident" is the memory of the whole process. Times are those of
the processor, which can be compared on a busy machine.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.rows import row
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.inference.stream import StreamState

TENTHS = 10
N_PARTICLES, D_MODEL, WINDOW = 10, 8, 12
IN_BENCH = 20_000


class Tenth(NamedTuple):
    """A tenth of the way: the mean processor time of its steps, and what is held at its end."""

    observations: int
    microseconds: float
    resident: int
    n_tensors: int
    held: int


def measure(*, tiny=False):
    n_observations = 200 if tiny else IN_BENCH
    first, second, *_, last = follow(n_observations)
    size = f"{N_PARTICLES} particles, window {WINDOW}, {first.microseconds / 1000:.2g} ms an observation"
    return [
        row(
            f"long stream: time, last / second tenth of {n_observations}", size, last.microseconds / second.microseconds
        ),
        row(f"long stream: state, last / first tenth of {n_observations}", size, last.held / first.held, at_most=1),
        row(f"long stream: process, last / first tenth of {n_observations}", size, last.resident / first.resident),
    ]


def follow(n_observations: int) -> Iterator[Tenth]:
    """Observe a stream; an answer at each tenth of the way."""
    config = SMCTransformerConfig(d_model=D_MODEL, d_ff=D_MODEL, window=WINDOW, encoder="gru")
    model = SMCTransformer(config, generator=0)
    state = model.init_state(1, n_particles=N_PARTICLES, generator=1)
    generator = torch.Generator().manual_seed(2)
    x = torch.zeros(1, 1)
    for _ in range(TENTHS):
        started = process_time()
        for _ in range(n_observations // TENTHS):
            x = 0.8 * x + 0.5**0.5 * torch.randn(1, 1, generator=generator)  # Model I of the paper
            state, _ = model.observe(state, x)
        seconds = process_time() - started
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors_of(state)}
        held = sum(storage.nbytes() for storage in storages.values())
        mean = 1e6 * seconds / (n_observations // TENTHS)
        yield Tenth(state.n_observed, mean, resident_bytes(), len(storages), held)


def tensors_of(state: StreamState) -> Iterator[Tensor]:
    """Every tensor that a state can reach, but for the model's own."""
    waiting: list[object] = [value for name, value in vars(state).items() if name != "network"]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one
        elif hasattr(one, "__dict__"):
            waiting += [value for name, value in vars(one).items() if name != "network"]


def resident_bytes() -> int:
    """Memory of this process that is in use now (not its peak)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--observations", type=int, default=1_000_000, help=f"a multiple of {TENTHS} (default: 1000000)"
    )
    options = parser.parse_args()
    if options.observations < TENTHS or options.observations % TENTHS:
        parser.error(f"--observations must be a multiple of {TENTHS}, got {options.observations}")
    torch.set_num_threads(1)
    print(f"{'observations':>12} {'us a step':>10} {'resident MiB':>13} {'tensors':>8} {'held bytes':>11}", flush=True)
    for tenth in follow(options.observations):
        print(
            f"{tenth.observations:>12,} {tenth.microseconds:>10.0f} {tenth.resident / 2**20:>13.1f} "
            f"{tenth.n_tensors:>8} {tenth.held:>11,}",
            flush=True,
        )


if __name__ == "__main__":
    main()
