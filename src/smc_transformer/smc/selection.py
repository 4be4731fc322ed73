"""The selection step: which particles go on, resampled always, never, or when they have become too unequal."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.resampling import Resampler
from smc_transformer.smc.weights import effective_sample_size, uniform_log_weights


class Selection(NamedTuple):
    """The outcome of a selection step.

    Attributes:
        ancestors: for each particle, the index of its parent.
        log_weights: the normalised log-weights that the selected particles carry.
        resampled: whether each sequence was resampled.
    """

    ancestors: Int[Tensor, "batch particle"]
    log_weights: Float[Tensor, "batch particle"]
    resampled: Bool[Tensor, "batch"]


def select(
    log_weights: Float[Tensor, "batch particle"],
    resample: Resampler,
    *,
    ess_threshold: float,
    informed: Bool[Tensor, "batch"] | None = None,
    generator: Generator | None = None,
) -> Selection:
    """Resample each sequence whose effective sample size is below `ess_threshold` times the particles.

    A threshold of 1 resamples at every step (the paper), 0 never. Resampled particles carry equal weights,
    the others keep theirs and are their own parents.

    Args:
        log_weights: normalised log-weights.
        resample: the resampling scheme.
        ess_threshold: share of the particles below which a sequence is resampled.
        informed: which sequences have seen an observation since they were resampled last; the others are left
            alone, as resampling equal weights only loses particles. None: all.
        generator: source of randomness.
    """
    n_particles = log_weights.shape[-1]
    resampled = (effective_sample_size(log_weights) < ess_threshold * n_particles) | (ess_threshold >= 1.0)
    if informed is not None:
        resampled = resampled & informed
    themselves = torch.arange(n_particles, device=log_weights.device).expand_as(log_weights)
    # Random numbers are drawn whenever resampling is possible, so that how many depends on the settings alone.
    if ess_threshold == 0 or not (informed is None or informed.any()):
        return Selection(themselves, log_weights, resampled)
    ancestors = resample(log_weights, n_particles, generator)
    ancestors = torch.where(resampled.unsqueeze(-1), ancestors, themselves)
    carried = torch.where(resampled.unsqueeze(-1), uniform_log_weights(log_weights), log_weights)
    return Selection(ancestors, carried, resampled)
