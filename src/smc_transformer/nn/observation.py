"""Observation laws: how X_t is distributed around what the read-out says."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.nn.covariance import COVARIANCES
from smc_transformer.predictive import GaussianMixture


class GaussianObservation(nn.Module):
    """X_t ~ N(mean, S_obs), with S_obs learned by EM.

    Args:
        n_targets: number of predicted coordinates.
        covariance: structure of S_obs.
        variance: its initial variance.
    """

    def __init__(self, n_targets: int, covariance: str = "full", variance: float = 0.5):
        super().__init__()
        self.covariance = COVARIANCES[covariance](n_targets, variance)

    def log_density(
        self, target: Float[Tensor, "*#batch n_targets"], mean: Float[Tensor, "*batch n_targets"]
    ) -> Float[Tensor, "*batch"]:
        """Log p(target | mean)."""
        return self.covariance.log_density(target - mean)

    def sample(
        self, mean: Float[Tensor, "*batch n_targets"], generator: Generator | None = None
    ) -> Float[Tensor, "*batch n_targets"]:
        """One draw for each mean."""
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return mean + self.covariance.scale(noise)

    def mixture(
        self,
        log_weights: Float[Tensor, "batch particle time"],
        means: Float[Tensor, "batch particle time n_targets"],
    ) -> GaussianMixture:
        """The predictive law of weighted particles."""
        return GaussianMixture(log_weights, means, self.covariance.root().detach())
