"""What users' data cost beside complete sequences: gaps, short series, counts, and forecasts as the goal of training.

The paper's model (linear encoder, Gaussian) and that of the forecaster (GRU of levels and changes, Student-t).
"""

import torch

from benchmarks.rows import row
from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, Trainer
from smc_transformer.kernels import threads_for_kernels
from smc_transformer.learning.goals import ForecastScore, Likelihood, Sampling

FORECASTER = {
    "encoder": "gru",
    "input_changes": True,
    "observation": "student_t",
    "predict_change": True,
    "window": 24,
    "initial_latent_variance": 0.05,
}
MODELS = {"the paper's model": {}, "the forecaster's": FORECASTER}
HISTORY = 48


def walks(batch, length, share_missing=0.0):
    """Random walks, some of whose values are missing after the first."""
    generator = torch.Generator().manual_seed(0)
    x = 0.1 * torch.randn(batch, length, 1, generator=generator).cumsum(dim=1)
    x[:, 1:][torch.rand(batch, length - 1, 1, generator=generator) < share_missing] = float("nan")
    return x


def step_of(goal, x, **settings):
    """A step towards a goal, without that of the optimiser."""
    model = SMCTransformer.from_settings({"n_particles": 10, **settings}, generator=0).train()

    def step():
        model.zero_grad()
        goal.accumulate(model, x, Sampling(10, generator=torch.Generator().manual_seed(1)))

    return step


def half_as_long(x):
    """Half of the sequences begin in the middle."""
    x = x.clone()
    x[::2, : x.shape[1] // 2] = float("nan")
    return x


def pass_over(x, batch, **settings):
    """A pass of the training loop over all sequences, which puts those of the same length together."""
    model = SMCTransformer.from_settings({"n_particles": 10, **settings}, generator=0)
    return lambda: Trainer(model, epochs=1, batch_size=batch, progress=False).fit(x)


def measure(*, tiny=False):
    batch, repetitions = (2, 2) if tiny else (32, 9)
    rows = []
    with threads_for_kernels():
        for name, settings in MODELS.items():
            n_steps = 4 if tiny else 24
            candidates = {
                "complete": step_of(Likelihood(), walks(batch, n_steps + 1), **settings),
                "gaps": step_of(Likelihood(), walks(batch, n_steps + 1, 0.1), **settings),
            }
            times = median_seconds(candidates, repetitions)
            label = f"training step: 10 % of the values missing / none, {name}"
            rows.append(row(label, (batch, 10, n_steps), times["gaps"] / times["complete"], at_most=1.3))
            n_steps = 4 if tiny else 72
            full = walks(8 * batch, n_steps + 1)
            candidates = {
                "full": pass_over(full, batch, **settings),
                "half": pass_over(half_as_long(full), batch, **settings),
            }
            times = median_seconds(candidates, max(2, repetitions // 3))
            label = f"training: half of the sequences half as long / all full, {name}"
            rows.append(row(label, (batch, 10, n_steps), times["half"] / times["full"], at_most=0.85))
        n_steps = 4 if tiny else 24
        counts = walks(batch, n_steps + 1).exp().mul(5).round()
        candidates = {
            "complete": step_of(Likelihood(), walks(batch, n_steps + 1)),
            "counts": step_of(Likelihood(), counts, observation="negative_binomial"),
        }
        times = median_seconds(candidates, repetitions)
        ratio = times["counts"] / times["complete"]
        rows.append(row("training step: counts / Gaussian", (batch, 10, n_steps), ratio, at_most=1.5))
        for horizon in (2,) if tiny else (24, 56):
            x = walks(batch, HISTORY + horizon)
            goal = ForecastScore(HISTORY - 1, short_share=0.0)
            candidates = {
                "likelihood": step_of(Likelihood(), x, **FORECASTER),
                "forecast": step_of(goal, x, **FORECASTER),
            }
            times = median_seconds(candidates, repetitions)
            label = "training step: 16 forecast paths / likelihood of the same windows"
            size = f"{batch} windows of {HISTORY} + {horizon}"
            rows.append(row(label, size, times["forecast"] / times["likelihood"], at_most=3))
    return rows
