"""A training step and a filter of ours, beside the textbook's, and beside a step of an ordinary transformer.

The replay is one forward and backward pass over batch x particles sequences, the filter one forward pass: with a
forward pass of 1 and a backward pass of 2, a step of the same code as the ordinary transformer's would cost 4 / 3.
"""

import torch

from benchmarks.deterministic import PlainTransformer
from benchmarks.rows import row
from benchmarks.textbook import textbook_filter
from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.inference.filter import particle_filter
from smc_transformer.learning import em_step
from smc_transformer.learning.step import accumulate_gradients

SIZES = {(32, 10, 24): (5, 3), (256, 30, 24): (8, 5), (32, 60, 60): (8, 5)}
"""(batch, particles, steps), and how much slower the textbook's training step and filter should be at least."""
TINY_SIZES = {(2, 3, 4): (5, 3)}


def measure(*, tiny=False):
    rows = []
    for size, (training, filtering) in (TINY_SIZES if tiny else SIZES).items():
        steps = median_seconds(training_steps(*size), repetitions=2 if tiny else 7)
        filters = median_seconds(filters_alone(*size), repetitions=2 if tiny else 7)
        rows += [
            row("training step: textbook / ours", size, steps["textbook"] / steps["ours"], at_least=training),
            row(
                "filter: textbook without autograd / ours",
                size,
                filters["textbook"] / filters["ours"],
                at_least=filtering,
            ),
            row(
                "training step: ours / deterministic transformer on batch x particles sequences",
                size,
                steps["ours"] / steps["deterministic"],
                at_most=2,
            ),
        ]
    return rows


def training_steps(batch, n_particles, n_steps):
    x = torch.randn(batch, n_steps + 1, 1, generator=torch.Generator().manual_seed(0))
    model = SMCTransformer.from_settings({"n_particles": n_particles}, generator=0)
    optimiser = torch.optim.Adam(model.gradient_parameters().values())
    other = SMCTransformer(SMCTransformerConfig(), generator=0)
    other_optimiser = torch.optim.Adam(other.gradient_parameters().values())
    plain = PlainTransformer()
    plain_optimiser = torch.optim.Adam(plain.parameters())
    many = x.repeat_interleave(n_particles, dim=0)

    def ours():
        optimiser.zero_grad()
        statistics, *_ = accumulate_gradients(model, x, batch * n_steps)
        optimiser.step()
        em_step(model, statistics, 0.1)

    def textbook():
        other_optimiser.zero_grad()
        objective, _, second_moment = textbook_filter(other, x, n_particles)
        (-objective.sum() / (batch * n_steps)).backward()
        other_optimiser.step()
        other.observation.covariance.update_(second_moment, 0.1)

    def deterministic():
        plain_optimiser.zero_grad()
        torch.nn.functional.mse_loss(plain(many[:, :-1]), many[:, 1:]).backward()
        plain_optimiser.step()

    return {"ours": ours, "textbook": textbook, "deterministic": deterministic}


def filters_alone(batch, n_particles, n_steps):
    x = torch.randn(batch, n_steps + 1, 1, generator=torch.Generator().manual_seed(0))
    model = SMCTransformer.from_settings({"n_particles": n_particles}, generator=0)

    @torch.no_grad()
    def textbook():
        return textbook_filter(model, x, n_particles)

    return {"ours": lambda: particle_filter(model, x, model.inference), "textbook": textbook}
