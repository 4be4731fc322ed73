"""The negative log-likelihood of held-out sequences."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.filtering import particle_filter

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


@torch.no_grad()
def negative_log_likelihood(
    model: "SMCTransformer",
    x: Float[Tensor, "sequence time_plus_1 n_inputs"],
    *,
    n_particles: int | None = None,
    batch_size: int = 64,
    generator: Generator | None = None,
) -> float:
    """Mean of -log p(X_t | X_{<t}) over all sequences and steps, in nats a step.

    The logarithm of an average over particles is too low by about its relative variance / 2, so this is an upper
    bound on average, and tight for many particles.
    """
    n_particles = n_particles or model.config.n_particles
    batches = (x[start : start + batch_size] for start in range(0, len(x), batch_size))
    total = sum(
        float(particle_filter(model, batch, n_particles, generator, keep_attention=False).log_likelihood.sum())
        for batch in batches
    )
    return -total / (len(x) * (x.shape[1] - 1))
