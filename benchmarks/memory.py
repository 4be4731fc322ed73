"""Peak memory of a training step, beside the noise and ancestors that it must keep.

Each size runs in a process of its own, whose peak is compared with that of a process that stops before the step.

    python -m benchmarks.memory 256 30 24        # one size, in MiB
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.rows import row
from benchmarks.training_step import SIZES, TINY_SIZES
from smc_transformer import SMCTransformer
from smc_transformer.learning.step import accumulate_gradients

LARGE = (2048, 60, 60)
D_MODEL = 32


def measure(*, tiny=False):
    rows = []
    for size in TINY_SIZES if tiny else SIZES:
        batch, n_particles, n_steps = size
        kept = batch * n_particles * n_steps * (4 * 4 * D_MODEL + 8)  # float32 noise of four kinds, int64 ancestors
        ratio = peak_bytes(size) / kept
        rows.append(row("peak memory of a training step / noise and ancestors", size, ratio))
    if not tiny:
        gibibytes = peak_bytes(LARGE) / 2**30
        rows.append(row("peak memory of a training step in GiB", LARGE, gibibytes, at_most=4))
    return rows


def peak_bytes(size):
    """What a training step adds to the peak memory of a process."""
    command = [sys.executable, "-m", "benchmarks.memory", *map(str, size)]
    run, without = (
        int(subprocess.run([*command, *more], check=True, capture_output=True, text=True).stdout)
        for more in ([], ["--without-step"])
    )
    return run - without


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", type=int, nargs=3, metavar="N", help="batch, particles, steps")
    parser.add_argument("--without-step", action="store_true", help="stop before the step")
    options = parser.parse_args()
    batch, n_particles, n_steps = options.size
    x = torch.randn(batch, n_steps + 1, 1, generator=torch.Generator().manual_seed(0))
    model = SMCTransformer.from_settings({"n_particles": n_particles, "d_model": D_MODEL}, generator=0)
    accumulate_gradients(model, x[:1, :2], 1)  # what is loaded and compiled once
    if not options.without_step:
        accumulate_gradients(model, x, batch * n_steps)
    # Not getrusage: its peak is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text()
    print(1024 * int(status.split("VmHWM:")[1].split()[0]))


if __name__ == "__main__":
    main()
