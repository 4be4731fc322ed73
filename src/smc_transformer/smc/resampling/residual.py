"""Residual resampling: floor(n W) copies for certain, the rest multinomial."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.resampling.base import draw_uniforms, invert_masses, probabilities, resampler


@resampler
def residual(
    log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
) -> Int[Tensor, "batch sample"]:
    """floor(n W_m) copies of particle m, and multinomial draws from what is left."""
    weights = probabilities(log_weights)
    copies = (n_samples * weights).floor()
    remainder = n_samples * weights - copies
    n_remaining = n_samples - copies.sum(dim=-1, keepdim=True)
    # How many draws remain differs between sequences: draw n for each, and count only the first n_remaining.
    drawn = invert_masses(remainder, draw_uniforms(log_weights, n_samples, generator))
    counted = torch.arange(n_samples, device=drawn.device) < n_remaining
    counts = copies.long().scatter_add(-1, drawn, counted.long())
    particles = torch.arange(log_weights.shape[-1], device=drawn.device).expand_as(counts)
    return particles.reshape(-1).repeat_interleave(counts.reshape(-1)).view(-1, n_samples)
