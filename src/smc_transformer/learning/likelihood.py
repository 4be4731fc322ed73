"""The negative log-likelihood of held-out sequences."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.chunks import in_chunks
from smc_transformer.inference.filter import particle_filter
from smc_transformer.support.checks import check_count
from smc_transformer.support.randomness import as_generator

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


@torch.no_grad()
def negative_log_likelihood(
    model: "SMCTransformer",
    x: Float[Tensor, "sequence time_plus_1 n_inputs"],
    *,
    n_particles: int | None = None,
    batch_size: int = 64,
    generator: Generator | int | None = None,
) -> float:
    """Mean of -log p(X_t | X_{<t}) over all sequences and all steps with an observation, in nats a step.

    The logarithm of an average over particles is too low by about its relative variance / 2, so this is an upper
    bound on average, and tight for many particles.
    """
    x = model.check(x, min_time=2)
    settings = model.settings(n_particles)
    batch_size = check_count(batch_size, "batch_size")
    generator = as_generator(generator, x.device)
    results = in_chunks(lambda chunk: particle_filter(model, chunk, settings, generator), batch_size, x)
    return -sum(float(result.log_likelihood.sum()) for result in results) / count_observations(model, x)


def count_observations(model: "SMCTransformer", x: Float[Tensor, "sequence time_plus_1 n_inputs"]) -> int:
    """How many steps have at least one observed target (at least 1, for dividing by it)."""
    observed = ~x[:, 1:, : model.config.n_targets].isnan()
    return max(1, int(observed.any(dim=-1).sum()))
