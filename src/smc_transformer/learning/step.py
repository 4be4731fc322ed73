"""One training step: filter without gradients, trace trajectories, replay them with gradients."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.filter import particle_filter
from smc_transformer.inference.replay import trajectory_inputs
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.smoothing import smooth
from smc_transformer.learning.em import Statistics, em_statistics
from smc_transformer.learning.objective import OBJECTIVES
from smc_transformer.model import SMCTransformer
from smc_transformer.smc.genealogy import gather_trajectories
from smc_transformer.support.checks import check_count
from smc_transformer.support.randomness import as_generator


class TrainingStep(NamedTuple):
    """What one batch tells about the parameters.

    Attributes:
        objective: for each sequence a number whose gradient estimates that of log p(X_1:T | X_0).
        statistics: for the EM step.
        log_likelihood: the filter's estimate of log p(X_1:T | X_0).
    """

    objective: Float[Tensor, "batch"]
    statistics: Statistics
    log_likelihood: Float[Tensor, "batch"]


def training_step(
    model: SMCTransformer,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    *,
    n_particles: int | None = None,
    n_trajectories: int | None = None,
    generator: Generator | int | None = None,
    inference: InferenceSettings | None = None,
) -> TrainingStep:
    """Estimate the score and the EM statistics of a batch.

    Args:
        model: the model.
        x: sequences X_0, ..., X_T; NaN targets are missing.
        n_particles: particles of the filter; None: that of the settings.
        n_trajectories: trajectories to replay, drawn by their weight; None: all, one for each particle.
        generator: a generator or seed; None uses torch's default generator.
        inference: settings of the inference; None: the model's.
    """
    x = model.check(x, min_time=2)
    settings = model.settings(n_particles, inference)
    n_trajectories = None if n_trajectories is None else check_count(n_trajectories, "n_trajectories")
    generator = as_generator(generator, x.device)

    result = particle_filter(model, x, settings, generator)
    trajectories, log_weights, ancestral = smooth(model, settings, x, result, n_trajectories, generator)
    # Observations that a trajectory drew for itself are latents like its noise: given them, its data are complete.
    completed = None if result.completed is None else gather_trajectories(result.completed, trajectories)
    inputs, noise = trajectory_inputs(model, x, completed), result.noise
    read_outs = gather_trajectories(result.read_outs, trajectories) if ancestral else None
    along_trajectories = OBJECTIVES[model.learning.gradient](model, inputs, noise, trajectories, read_outs)
    return TrainingStep(
        objective=(log_weights.exp() * along_trajectories.log_density.sum(dim=-1)).sum(dim=-1),
        statistics=em_statistics(
            model, inputs.targets, along_trajectories.parameters, noise, trajectories, log_weights
        ),
        log_likelihood=result.log_likelihood,
    )
