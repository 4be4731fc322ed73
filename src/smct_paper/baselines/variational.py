"""Bayes by backprop (Blundell et al., 2015): a Gaussian posterior over weights, a scale-mixture prior, and their KL."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.distributions import Normal
from torch.nn import functional as F


@dataclass(frozen=True)
class ScaleMixture:
    """The prior of a weight: pi N(0, sigma_1^2) + (1 - pi) N(0, sigma_2^2)."""

    sigma_1: float
    sigma_2: float
    pi: float

    @property
    def sole_deviation(self) -> float | None:
        """The deviation of a prior that is a single Gaussian; None if it is none."""
        if self.pi == 1.0 or self.sigma_1 == self.sigma_2:
            return self.sigma_1
        return self.sigma_2 if self.pi == 0.0 else None

    def log_prob(self, weight: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Log density of each weight."""
        parts = [
            math.log(probability) + Normal(0.0, sigma).log_prob(weight)
            for probability, sigma in ((self.pi, self.sigma_1), (1 - self.pi, self.sigma_2))
            if probability > 0
        ]
        return torch.logsumexp(torch.stack(parts), dim=0)

    def sample(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        """Independent weights."""
        first = torch.rand(shape, generator=generator) < self.pi
        return torch.randn(shape, generator=generator) * torch.where(first, self.sigma_1, self.sigma_2)


class GaussianPosterior(nn.Module):
    """Independent Gaussians over all weights of a network, in one long vector; all start with the same deviation."""

    def __init__(self, mean: Float[Tensor, "weight"], deviation: float):
        super().__init__()
        self.mean = nn.Parameter(mean.clone())
        self.rho = nn.Parameter(torch.full_like(mean, math.log(math.expm1(deviation))))

    @property
    def deviation(self) -> Float[Tensor, "weight"]:
        """Softplus of rho: positive."""
        return F.softplus(self.rho)

    def sample(self, n_samples: int, generator: Generator | None) -> Float[Tensor, "sample weight"]:
        """Draws that gradients pass through to mean and deviation."""
        noise = torch.randn(n_samples, len(self.mean), generator=generator)
        return self.mean + self.deviation * noise

    def divergence(self, prior: ScaleMixture, weights: Float[Tensor, "sample weight"]) -> Float[Tensor, ""]:
        """KL(posterior || prior): exact where the prior is a single Gaussian, else averaged over given draws."""
        deviation = self.deviation
        sigma = prior.sole_deviation
        if sigma is not None:
            ratio = deviation / sigma
            return ((ratio.square() + (self.mean / sigma).square() - 1) / 2 - ratio.log()).sum()
        log_ratio = Normal(self.mean, deviation).log_prob(weights) - prior.log_prob(weights)
        return log_ratio.sum(dim=-1).mean()
