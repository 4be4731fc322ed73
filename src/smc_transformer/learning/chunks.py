"""The gradient and the EM statistics of a batch, in chunks of sequences, so that its memory is bounded.

A training step holds some twenty tensors of batch x particles x steps x d_model numbers. Sequences are independent, so
the gradients of chunks add up to that of the batch, and their statistics average to those of the batch.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.learning.em import Statistics, merge_statistics
from smc_transformer.learning.step import training_step
from smc_transformer.smc.weights import WeightCollapseError

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

NUMBERS_AT_ONCE = 3 * 2**19
"""How many numbers a tensor of latents may have (6 MiB in float32): small enough for the cache to help, too."""


def sequences_at_once(model: "SMCTransformer", n_particles: int, n_steps: int) -> int:
    """How many sequences a chunk has: at least one."""
    return max(1, NUMBERS_AT_ONCE // (n_particles * n_steps * model.config.d_model))


def accumulate_gradients(
    model: "SMCTransformer",
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    divisor: int | float,
    *,
    n_particles: int | None = None,
    n_trajectories: int | None = None,
    generator: Generator | None = None,
) -> tuple[Statistics, Float[Tensor, "batch"]]:
    """Add the gradient of -log p(X) / divisor, summed over the batch, to those of the parameters.

    Args:
        model: the model.
        x: sequences X_0, ..., X_T; NaN targets are missing.
        divisor: what the log-likelihood of the batch is divided by, such as its number of observations.
        n_particles: particles of the filter; None: that of the settings.
        n_trajectories: trajectories to replay; None: one for each particle.
        generator: source of randomness.

    Returns:
        The EM statistics of the batch, and the filter's log-likelihood of each sequence.
    """
    at_once = sequences_at_once(model, n_particles or model.inference.n_particles, x.shape[1] - 1)
    statistics, log_likelihood = [], []
    for first in range(0, len(x), at_once):
        chunk = x[first : first + at_once]
        try:
            step = training_step(
                model, chunk, n_particles=n_particles, n_trajectories=n_trajectories, generator=generator
            )
        except WeightCollapseError as error:
            raise WeightCollapseError(first + error.sequence, error.step) from None
        (-step.objective.sum() / divisor).backward()
        statistics.append((step.statistics, len(chunk) / len(x)))
        log_likelihood.append(step.log_likelihood)
    return merge_statistics(model, statistics), torch.cat(log_likelihood)
