"""Expectation-maximisation for the covariances.

For a Gaussian noise the M-step is the posterior second moment of its residual. With residuals along smoothing
trajectories, averaged over trajectories (by weight), steps and batch,

    S^p = mean of r r^T,        S <- (1 - eta_p) S + eta_p S^p,        eta_p = p^-0.6,

projected to the structure of S. It runs outside of any gradient, once for each batch p = 1, 2, ...
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.learning.objective import Trajectories
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.observation.base import weighted_mean, weighted_second_moment
from smc_transformer.smc.genealogy import gather_trajectories


class Statistics(NamedTuple):
    """What one batch tells about the covariances."""

    observation: Any  # statistics of the observation model; None for one that is learned by gradient alone
    # Second moments by the name of the noise; empty when the latent covariances are learned by gradient.
    latent: dict[str, Float[Tensor, "d_model d_model"]]


def power_step_size(exponent: float = 0.6, offset: int = 0) -> Callable[[int], float]:
    """Step sizes eta_p = (p + offset)^-exponent for p = 1, 2, ...; the paper has 0.6 and no offset.

    Without an offset the first step replaces the initial covariance altogether. An offset of some hundred steps
    and a small initial observation variance let the particles compete for the data before S_obs explains
    everything: what a multimodal distribution needs (docs/learning.md).
    """
    if not 0.5 < exponent <= 1.0:
        raise ValueError(f"stochastic EM converges for exponents in (0.5, 1], got {exponent}")
    if offset < 0:
        raise ValueError(f"offset must be at least 0, got {offset}")
    return lambda p: float((p + offset) ** -exponent)


@torch.no_grad()
def em_statistics(
    model: SMCTransformer,
    trajectories: Trajectories,
    parameters: Float[Tensor, "batch trajectory time n_parameters"],
) -> Statistics:
    """The M-step's statistics from the trajectories of one batch, and the parameters of p(X_t | z) along them."""
    weights = trajectories.log_weights.exp()
    latent = {}
    if model.learning.noise_learning == "em":
        latent = {
            name: weighted_second_moment(covariance.scale(gather_trajectories(eps, trajectories.particles)), weights)
            for (name, covariance), eps in zip(model.latent_covariances().items(), trajectories.noise, strict=True)
        }
    return Statistics(model.observation.statistics(trajectories.inputs.targets, parameters, weights), latent)


def merge_statistics(model: SMCTransformer, parts: list[tuple[Statistics, float]]) -> Statistics:
    """The statistics of a batch from those of its parts, each with its share of all steps of all sequences."""
    if len(parts) == 1:
        return parts[0][0]
    shares = [share for _, share in parts]
    latent = {name: weighted_mean([part.latent[name] for part, _ in parts], shares) for name in parts[0][0].latent}
    return Statistics(model.observation.merge([part.observation for part, _ in parts], shares), latent)


def em_step(model: SMCTransformer, statistics: Statistics, step_size: float) -> None:
    """Move the covariances that EM learns a step towards the statistics of a batch."""
    if statistics.observation is not None:
        model.observation.em_step_(statistics.observation, step_size)
    covariances = model.latent_covariances()
    for name, moment in statistics.latent.items():
        covariances[name].update_(moment, step_size)
