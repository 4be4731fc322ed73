"""Stratified resampling: one independent draw in each of n equal strata of the cumulative weights."""

from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.resampling.base import draw_uniforms, invert_masses, one_per_stratum, probabilities, resampler


@resampler
def stratified(
    log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
) -> Int[Tensor, "batch sample"]:
    """One independent draw in each stratum [i/n, (i+1)/n)."""
    uniforms = draw_uniforms(log_weights, n_samples, generator)
    return invert_masses(probabilities(log_weights), one_per_stratum(uniforms, n_samples))
