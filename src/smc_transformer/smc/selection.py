"""The selection step: which particles go on, resampled always, never, or when they have become too unequal."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.resampling import Resampler
from smc_transformer.smc.weights import effective_sample_size, normalise, uniform_log_weights


class Selection(NamedTuple):
    """The outcome of a selection step."""

    ancestors: Int[Tensor, "batch particle"]  # for each particle, the index of its parent
    # What the selected particles carry: normalised, or, after a first stage, such that reweighting makes it right.
    log_weights: Float[Tensor, "batch particle"]
    resampled: Bool[Tensor, "batch"]


def select(
    log_weights: Float[Tensor, "batch particle"],
    resample: Resampler,
    *,
    ess_threshold: float,
    informed: Bool[Tensor, "batch"] | None = None,
    first_stage: Float[Tensor, "batch particle"] | None = None,
    generator: Generator | None = None,
) -> Selection:
    """Resample each sequence whose effective sample size is below `ess_threshold` times the particles.

    A threshold of 1 resamples at every step (the paper), 0 never. Resampled particles carry equal weights,
    the others keep theirs and are their own parents.

    Sequences that are not `informed`, which have seen no observation since they were resampled last, are left alone, as
    resampling equal weights only loses particles. With a `first_stage`, logarithms of how well each particle will do
    (the auxiliary filter), particles are drawn by weight times this, and carry weights that make up for it.
    """
    wanted = log_weights
    if first_stage is not None:  # weight times first stage, but the weights alone where that leaves nothing
        wanted, total = normalise(log_weights + torch.where(first_stage.isnan(), -torch.inf, first_stage))
        wanted = torch.where(total.isfinite().unsqueeze(-1), wanted, log_weights)
    n_particles = log_weights.shape[-1]
    resampled = (effective_sample_size(wanted) < ess_threshold * n_particles) | (ess_threshold >= 1.0)
    if informed is not None:
        resampled = resampled & informed
    themselves = torch.arange(n_particles, device=log_weights.device).expand_as(log_weights)
    # Random numbers are drawn whether or not a sequence is due, so that how many depends on the settings alone.
    if ess_threshold == 0:
        return Selection(themselves, log_weights, resampled)
    ancestors = resample(wanted, n_particles, generator)
    ancestors = torch.where(resampled.unsqueeze(-1), ancestors, themselves)
    equal = uniform_log_weights(log_weights)
    if first_stage is not None:
        equal = equal + (log_weights - wanted).gather(1, ancestors)
    carried = torch.where(resampled.unsqueeze(-1), equal, log_weights)
    return Selection(ancestors, carried, resampled)
