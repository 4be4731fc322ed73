"""1000 paths of 12 steps for 100 series: ours beside the same transformer sampling paths without latent noise."""

import torch

from benchmarks.deterministic import PlainTransformer
from benchmarks.rows import row
from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig


def measure(*, tiny=False):
    n_series, n_paths, horizon, n_past = (3, 5, 2, 4) if tiny else (100, 1000, 12, 24)
    history = torch.randn(n_series, n_past, 1, generator=torch.Generator().manual_seed(0))
    model, plain = SMCTransformer(SMCTransformerConfig(), generator=0), PlainTransformer()
    candidates = {
        "ours": lambda: model.forecast(history, horizon, n_paths),
        "plain": lambda: plain.sample_paths(history, horizon, n_paths),
    }
    times = median_seconds(candidates, repetitions=2 if tiny else 5)
    size = f"{n_paths} paths x {horizon} steps x {n_series} series of {n_past}, {times['ours']:.2g} s"
    return [row("multistep: ours / transformer without latent noise", size, times["ours"] / times["plain"], at_most=2)]
