"""Systematic resampling (the default): one draw in each stratum, all at the same place in it."""

from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.resampling.base import draw_uniforms, invert_masses, one_per_stratum, probabilities, resampler


@resampler
def systematic(
    log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
) -> Int[Tensor, "batch sample"]:
    """One draw in each stratum, all at the same place in it."""
    uniforms = draw_uniforms(log_weights, 1, generator)
    return invert_masses(probabilities(log_weights), one_per_stratum(uniforms, n_samples))
