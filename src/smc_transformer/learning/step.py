"""One training step's estimates: filter without gradients, trace lines, replay them in parallel with gradients."""

from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.filtering import particle_filter
from smc_transformer.learning.em import SecondMoments, second_moments
from smc_transformer.learning.score import OBJECTIVES
from smc_transformer.nn.attention import Noise
from smc_transformer.smc.genealogy import gather_lines
from smc_transformer.smc.resampling import RESAMPLERS
from smc_transformer.smc.smoothing import genealogy

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class TrainingStep(NamedTuple):
    """What one batch tells about the parameters.

    Attributes:
        objective: for each sequence a number whose gradient estimates that of log p(X_1:T | X_0).
        moments: statistics for the EM step.
        log_likelihood: the filter's estimate of log p(X_1:T | X_0).
    """

    objective: Float[Tensor, "batch"]
    moments: SecondMoments
    log_likelihood: Float[Tensor, "batch"]


def training_step(
    model: "SMCTransformer",
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    *,
    n_particles: int | None = None,
    n_lines: int | None = None,
    generator: Generator | None = None,
) -> TrainingStep:
    """Estimate the score and the EM statistics of a batch.

    Args:
        model: the model.
        x: sequences X_0, ..., X_T.
        n_particles: particles of the filter; None: `config.n_particles`.
        n_lines: lines to replay, drawn by their weight; None: all, one for each particle.
        generator: source of randomness.
    """
    result = particle_filter(model, x, n_particles or model.config.n_particles, generator, keep_attention=False)
    smoothed = genealogy(
        result.ancestors,
        result.log_weights[:, :, -1],
        n_lines,
        RESAMPLERS[model.config.resampling],
        generator,
    )
    noise = Noise(*(gather_lines(eps, smoothed.lines) for eps in result.noise))
    along_lines = OBJECTIVES[model.config.gradient](model, x, noise)
    weights = smoothed.log_weights.exp()
    _, _, targets = model.split(x)
    return TrainingStep(
        objective=(weights * along_lines.log_density.sum(dim=-1)).sum(dim=-1),
        moments=second_moments(model, targets - along_lines.means, noise, smoothed.log_weights),
        log_likelihood=result.log_likelihood,
    )
