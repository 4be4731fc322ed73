"""Seconds of a filter, of paths and of a training step, each the least of some runs: what the kernels are there for."""

import sys
import time

import torch

from smc_transformer import SMCTransformer, SMCTransformerConfig, Trainer
from smc_transformer.kernels import library

RUNS = 7


def main():
    torch.set_num_threads(1)
    if library(torch.empty(0)) is None:
        sys.exit("there are no kernels")
    model = SMCTransformer(SMCTransformerConfig(n_inputs=1, n_targets=1, window=16, encoder="gru"), generator=0)
    x = torch.randn(32, 64, 1, generator=torch.Generator().manual_seed(0))
    work = {
        "filter": lambda: model.filter(x, 64, generator=0),
        "paths": lambda: model.forecast(x, 24, 100, generator=0),
        "training": lambda: Trainer(model, epochs=1, batch_size=32, n_particles=64, progress=False).fit(x),
    }
    for name, run in work.items():
        run()
        print(name, min(seconds(run) for _ in range(RUNS)))  # noqa: T201


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


main()
