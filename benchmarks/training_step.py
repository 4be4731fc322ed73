"""A training step of ours beside one of the deterministic transformer on as many sequences as there are particles.

The replay is one forward and backward pass over batch x particles sequences, the filter one forward pass: with a
forward pass of 1 and a backward pass of 2, the least possible ratio is 4 / 3.
"""

import torch

from benchmarks.timing import median_seconds
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import em_step, training_step
from smc_transformer.nn import Noise

SIZES = ((32, 10, 24), (256, 30, 24), (32, 60, 60))
TINY_SIZES = ((2, 3, 4),)
TARGET = 2.0


def measure(*, tiny: bool = False) -> list[dict]:
    rows = []
    for batch, n_particles, n_steps in TINY_SIZES if tiny else SIZES:
        times = median_seconds(_candidates(batch, n_particles, n_steps), repetitions=2 if tiny else 7)
        ratio = times["ours"] / times["deterministic"]
        rows.append(
            {
                "name": "training step: ours / deterministic transformer on batch x particles sequences",
                "size": [batch, n_particles, n_steps],
                "ratio": round(ratio, 2),
                "target": TARGET,
                "met": ratio <= TARGET,
            }
        )
    return rows


def _candidates(batch, n_particles, n_steps):
    x = torch.randn(batch, n_steps + 1, 1, generator=torch.Generator().manual_seed(0))
    model = SMCTransformer(SMCTransformerConfig(n_particles=n_particles), generator=0)
    optimiser = torch.optim.Adam(model.parameters())
    plain = SMCTransformer(SMCTransformerConfig(initial_latent_variance=0.0), generator=0)
    plain_optimiser = torch.optim.Adam(plain.parameters())
    many = x.repeat_interleave(n_particles, dim=0)
    no_noise = Noise(*torch.zeros(4, 1, 1, 1, 1).expand(4, len(many), 1, n_steps, 32).unbind())

    def ours():
        optimiser.zero_grad()
        step = training_step(model, x)
        (-step.objective.mean()).backward()
        optimiser.step()
        em_step(model, step.statistics, 0.1)

    def deterministic():
        plain_optimiser.zero_grad()
        (-plain.replay(many, no_noise).log_density.mean()).backward()
        plain_optimiser.step()

    return {"ours": ours, "deterministic": deterministic}
