"""A whole `fit` with validation, checkpoints and progress: what everything around the training steps costs."""

import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.rows import row
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import goals, trainer
from smc_transformer.learning.optimiser import Adam
from smc_transformer.learning.trainer import fit
from smct_paper.datasets import SYNTHETIC

PARTS = {
    "accumulate_gradients": goals,
    "em_step": trainer,
    "negative_log_likelihood": goals,
    "save_checkpoint": trainer,
}
"""Functions of a training, and who calls them; the optimiser's own step is timed beside them."""


class TimedAdam(Adam):
    """Adam that knows how long it has worked."""

    seconds = 0.0

    def step(self, closure=None):
        started = perf_counter()
        result = super().step(closure)
        TimedAdam.seconds += perf_counter() - started
        return result


def measure(*, tiny=False):
    n_train, n_validation, epochs = (8, 4, 1) if tiny else (800, 100, 12)
    x = SYNTHETIC["model1"].sample(n_train + n_validation, 24, generator=0)
    seconds = dict.fromkeys(PARTS, 0.0)
    originals = {name: getattr(module, name) for name, module in PARTS.items()}

    def timed(name):
        def call(*arguments, **options):
            started = perf_counter()
            try:
                return originals[name](*arguments, **options)
            finally:
                seconds[name] += perf_counter() - started

        return call

    model = SMCTransformer(SMCTransformerConfig(), generator=0)
    fit(model, x[:32], epochs=1, progress=False)  # what is loaded and compiled once
    try:
        for name, module in PARTS.items():
            setattr(module, name, timed(name))
        with tempfile.TemporaryDirectory() as folder:
            started = perf_counter()
            fit(
                model,
                x[:n_train],
                x[n_train:],
                epochs=epochs,
                checkpoint=Path(folder) / "run.safetensors",
                optimiser=lambda parameters, rate: TimedAdam(parameters, lr=rate, fused=True),
            )
            total = perf_counter() - started
    finally:
        for name, original in originals.items():
            setattr(PARTS[name], name, original)
    step = seconds["accumulate_gradients"] + TimedAdam.seconds
    rest = total - sum(seconds.values()) - TimedAdam.seconds
    size = f"{n_train} + {n_validation} sequences of 24, {epochs} epochs, {total:.2g} s"
    costs = {
        "validation": seconds["negative_log_likelihood"],
        "EM": seconds["em_step"],
        "checkpoints": seconds["save_checkpoint"],
        "batches, clipping, progress": rest,
    }
    return [
        row(f"fit: {name} / filter, gradient and optimiser", size, cost / step, at_most=0.1)
        for name, cost in costs.items()
    ]
