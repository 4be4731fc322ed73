"""Multinomial resampling (the paper): independent draws."""

from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.resampling.base import draw_uniforms, invert_masses, probabilities, resampler


@resampler
def multinomial(
    log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
) -> Int[Tensor, "batch sample"]:
    """Independent draws."""
    uniforms = draw_uniforms(log_weights, n_samples, generator)
    return invert_masses(probabilities(log_weights), uniforms)
