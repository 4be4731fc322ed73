"""Resampling: draw the indices of particles in proportion to their weights.

Every scheme is a function `(log_weights, n_samples, generator) -> indices`, in batch, and unbiased: particle m
is drawn n_samples * W_m times on average. They differ in the variance of those counts:

    multinomial   independent draws (the paper)
    residual      floor(n W) copies for certain, the rest multinomial
    stratified    one draw in each of n equal strata of the cumulative weights
    systematic    the same, with one shared uniform: least noise, one random number (the default)

Weights come in as logarithms of *normalised* weights and are made into probabilities here, in float64, so that
a cumulative sum over many particles neither skips nor invents any.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.kernels.draws import invert_cumulative


@runtime_checkable
class Resampler(Protocol):
    """What every resampling scheme looks like."""

    def __call__(
        self, log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
    ) -> Int[Tensor, "batch sample"]:
        """Draw `n_samples` particle indices for each sequence of the batch."""
        ...


def multinomial(
    log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
) -> Int[Tensor, "batch sample"]:
    """Independent draws."""
    uniforms = _uniforms(log_weights, n_samples, generator)
    return _invert_cumulative(_probabilities(log_weights), uniforms)


def stratified(
    log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
) -> Int[Tensor, "batch sample"]:
    """One independent draw in each stratum [i/n, (i+1)/n)."""
    uniforms = _uniforms(log_weights, n_samples, generator)
    return _invert_cumulative(_probabilities(log_weights), _one_per_stratum(uniforms, n_samples))


def systematic(
    log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
) -> Int[Tensor, "batch sample"]:
    """One draw in each stratum, all at the same place in it."""
    uniforms = _uniforms(log_weights, 1, generator)
    return _invert_cumulative(_probabilities(log_weights), _one_per_stratum(uniforms, n_samples))


def residual(
    log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
) -> Int[Tensor, "batch sample"]:
    """floor(n W_m) copies of particle m, and multinomial draws from what is left."""
    probabilities = _probabilities(log_weights)
    copies = (n_samples * probabilities).floor()
    remainder = n_samples * probabilities - copies
    n_remaining = n_samples - copies.sum(dim=-1, keepdim=True)
    # How many draws remain differs between sequences: draw n for each, and count only the first n_remaining.
    drawn = _invert_cumulative(remainder, _uniforms(log_weights, n_samples, generator))
    counted = torch.arange(n_samples, device=drawn.device) < n_remaining
    counts = copies.long().scatter_add(-1, drawn, counted.long())
    particles = torch.arange(log_weights.shape[-1], device=drawn.device).expand_as(counts)
    return particles.reshape(-1).repeat_interleave(counts.reshape(-1)).view(-1, n_samples)


RESAMPLERS: dict[str, Resampler] = {
    "multinomial": multinomial,
    "residual": residual,
    "stratified": stratified,
    "systematic": systematic,
}


def _probabilities(log_weights: Float[Tensor, "batch particle"]) -> Float[Tensor, "batch particle"]:
    return torch.softmax(log_weights.double(), dim=-1)


def _uniforms(
    like: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None
) -> Float[Tensor, "batch sample"]:
    return torch.rand(like.shape[0], n_samples, generator=generator, dtype=torch.float64, device=like.device)


def _one_per_stratum(uniforms: Float[Tensor, "batch _"], n_samples: int) -> Float[Tensor, "batch sample"]:
    return (torch.arange(n_samples, device=uniforms.device) + uniforms) / n_samples


def _invert_cumulative(
    masses: Float[Tensor, "batch particle"], uniforms: Float[Tensor, "batch sample"]
) -> Int[Tensor, "batch sample"]:
    """The first particle whose cumulative share of the mass exceeds the uniform: never one of mass zero."""
    indices = invert_cumulative(masses, uniforms)
    if indices is not None:
        return indices
    cumulative = masses.cumsum(dim=-1)
    total = cumulative[:, -1:]
    # A uniform that rounds up to the total must not run past the last particle that has mass.
    levels = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, levels, right=True).clamp_(max=masses.shape[-1] - 1)
