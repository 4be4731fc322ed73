"""Resampling: draw the indices of particles in proportion to their weights.

Every scheme is a function `(log_weights, n_samples, generator) -> indices`, in batch, and unbiased: particle m
is drawn n_samples * W_m times on average. They differ in the variance of those counts:

    multinomial   independent draws (the paper)
    residual      floor(n W) copies for certain, the rest multinomial
    stratified    one draw in each of n equal strata of the cumulative weights
    systematic    the same, with one shared uniform: least noise, one random number (the default)

A scheme is one small file in this folder with a function under the decorator `resampler`; its name is what settings
call it.

Weights come in as logarithms of *normalised* weights and are made into probabilities here, in float64, so that
a cumulative sum over many particles neither skips nor invents any.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.randomness import draw_uniform


@runtime_checkable
class Resampler(Protocol):
    """What every resampling scheme looks like."""

    def __call__(
        self, log_weights: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None = None
    ) -> Int[Tensor, "batch sample"]:
        """Draw `n_samples` particle indices for each sequence of the batch."""
        ...


RESAMPLERS: dict[str, Resampler] = {}  # by name


def resampler(function: Resampler) -> Resampler:
    """Make a scheme known by its function's name."""
    RESAMPLERS[function.__name__] = function  # type: ignore[attr-defined]
    return function


def probabilities(log_weights: Float[Tensor, "batch particle"]) -> Float[Tensor, "batch particle"]:
    """Weights from normalised log-weights, in float64."""
    return torch.softmax(log_weights.double(), dim=-1)


def draw_uniforms(
    like: Float[Tensor, "batch particle"], n_samples: int, generator: Generator | None
) -> Float[Tensor, "batch sample"]:
    """Uniform numbers in [0, 1), in float64."""
    return draw_uniform((like.shape[0], n_samples), like.new_empty(0, dtype=torch.float64), generator)


def one_per_stratum(uniforms: Float[Tensor, "batch _"], n_samples: int) -> Float[Tensor, "batch sample"]:
    """The uniforms moved into strata [i/n, (i+1)/n)."""
    return (torch.arange(n_samples, device=uniforms.device) + uniforms) / n_samples


def invert_masses(
    masses: Float[Tensor, "batch particle"], uniforms: Float[Tensor, "batch sample"]
) -> Int[Tensor, "batch sample"]:
    """The first particle whose cumulative share of the mass exceeds the uniform: never one of mass zero."""
    cumulative = masses.cumsum(dim=-1)
    total = cumulative[:, -1:]
    # A uniform that rounds up to the total must not run past the last particle that has mass.
    levels = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, levels, right=True).clamp_(max=masses.shape[-1] - 1)
