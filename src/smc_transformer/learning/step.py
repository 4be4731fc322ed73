"""One training step: filter without gradients, trace trajectories, replay them with gradients.

A step holds some twenty tensors of batch x particles x steps x d_model numbers. Sequences are independent, so the
gradients of chunks add up to that of the batch, and their statistics average to those of the batch. The same holds for
groups of sequences that begin at different rows (`learning/ragged.py`).
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.chunks import in_chunks
from smc_transformer.inference.filter import filter_alone
from smc_transformer.inference.replay import trajectory_inputs
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.smoothing import smooth
from smc_transformer.kernels import threads_for_kernels
from smc_transformer.learning.em import Statistics, em_statistics, merge_statistics
from smc_transformer.learning.objective import OBJECTIVES, Trajectories
from smc_transformer.learning.ragged import groups_by_start
from smc_transformer.model import SMCTransformer
from smc_transformer.smc.genealogy import gather_trajectories
from smc_transformer.support.checks import check_count
from smc_transformer.support.chunks import chunk_size
from smc_transformer.support.randomness import as_generator

NUMBERS_AT_ONCE = 3 * 2**19
"""How many numbers a tensor of latents may have (6 MiB in float32): small enough for the cache to help, too."""


class TrainingStep(NamedTuple):
    """What one batch tells about the parameters."""

    objective: Float[Tensor, "batch"]  # numbers whose gradients estimate those of log p(X_1:T | X_0)
    statistics: Statistics
    log_likelihood: Float[Tensor, "batch"]  # the filter's estimate of log p(X_1:T | X_0)


class Accumulated(NamedTuple):
    """What a batch told while its gradient was added up."""

    statistics: Statistics
    log_likelihood: Float[Tensor, "batch"]  # the filter's, of each sequence
    n_steps: int  # of all sequences together, over which the statistics are averages


def training_step(
    model: SMCTransformer,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    *,
    n_particles: int | None = None,
    n_trajectories: int | None = None,
    generator: Generator | int | None = None,
    inference: InferenceSettings | None = None,
) -> TrainingStep:
    """Estimate the score and the EM statistics of a batch, with the options of `SMCTransformer.filter`.

    `n_trajectories` are replayed, drawn by their weight; None: all, one for each particle.
    """
    x = model.check(x, min_time=2)
    settings = model.settings(n_particles, inference)
    n_trajectories = None if n_trajectories is None else check_count(n_trajectories, "n_trajectories")
    generator = as_generator(generator, x.device)

    # Without gaps all trajectories see the same, and the filter sees it too.
    known = None if x.isnan().any() else trajectory_inputs(model, x)
    embedding = None if known is None else known.embedding_of_each.detach().squeeze(1)
    result = filter_alone(model, x, settings, generator, embedding=embedding)
    particles, log_weights, ancestral = smooth(model, settings, x, result, n_trajectories, generator)
    # Observations that a trajectory drew for itself are latents like its noise: given them, its data are complete.
    completed = None if result.completed is None else gather_trajectories(result.completed, particles)
    inputs = known or trajectory_inputs(model, x, completed, particles if ancestral else None)
    read_outs = gather_trajectories(result.read_outs, particles) if ancestral else None
    trajectories = Trajectories(inputs, result.noise, particles, log_weights, read_outs)
    log_density, parameters = OBJECTIVES[model.learning.gradient](model, trajectories)
    objective = (log_weights.exp() * log_density.sum(dim=-1)).sum(dim=-1)
    return TrainingStep(objective, em_statistics(model, trajectories, parameters), result.log_likelihood)


def sequences_at_once(model: SMCTransformer, n_particles: int, n_steps: int) -> int:
    """How many sequences a chunk has: at least one."""
    return chunk_size(NUMBERS_AT_ONCE, n_particles * n_steps * model.config.d_model)


@threads_for_kernels()
def accumulate_gradients(
    model: SMCTransformer,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    divisor: int | float,
    *,
    n_particles: int | None = None,
    n_trajectories: int | None = None,
    generator: Generator | None = None,
) -> Accumulated:
    """Add the gradient of -log p(X) / divisor, summed over the batch, to those of the parameters.

    The divisor is such as the batch's number of observations, all else as in `training_step`; sequences may begin at
    different rows.
    """
    run = partial(training_step, model, n_particles=n_particles, n_trajectories=n_trajectories, generator=generator)
    groups = groups_by_start(x)
    n_steps = sum(group.n_steps for group in groups)
    statistics, log_likelihood = [], x.new_empty(len(x))
    for group in groups:
        length, found = group.x.shape[1] - 1, []
        at_once = sequences_at_once(model, n_particles or model.inference.n_particles, length)
        with group.places_of_batch():
            for step in in_chunks(run, at_once, group.x):
                (-step.objective.sum() / divisor).backward()
                statistics.append((step.statistics, len(step.objective) * length / n_steps))
                found.append(step.log_likelihood)
        log_likelihood[group.sequences] = torch.cat(found)
    return Accumulated(merge_statistics(model, statistics), log_likelihood, n_steps)
