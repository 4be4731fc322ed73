"""Counts: negative binomial observations, with mean mu and variance mu + alpha mu^2, both given by the read-out."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from smc_transformer.kernels import densities
from smc_transformer.nn.observation.base import ObservationModel, WholeNumbers
from smc_transformer.nn.observation.masked import observed_sum
from smc_transformer.nn.streams import poisson, standard_gamma
from smc_transformer.predictive import Components

LARGEST_LOG = 15.0
"""Log-means and log-dispersions are kept within this, so that no count overflows."""


class NegativeBinomialComponents(Components):
    """Independent negative binomial counts: mean mu, variance mu + dispersion mu^2; towards 0 they are Poisson."""

    discrete = True

    def __init__(self, mean: Float[Tensor, "*batch target"], dispersion: Float[Tensor, "*batch target"]):
        self._mean = mean
        self.dispersion = dispersion

    @property
    def mean(self) -> Float[Tensor, "*batch target"]:
        return self._mean

    @property
    def variance(self) -> Float[Tensor, "*batch target"]:
        return self._mean + self.dispersion * self._mean.square()

    def log_prob(
        self, x: Float[Tensor, "*#batch target"], observed: Bool[Tensor, "*#batch target"] | None = None
    ) -> Float[Tensor, "*batch"]:
        count = x if observed is None else torch.where(observed, x, 0.0)
        # In float64: for small dispersions the size is large, and lgamma(count + size) - lgamma(size) cancels.
        count, mean, dispersion = count.double(), self._mean.double(), self.dispersion.double()
        size, product = 1 / dispersion, dispersion * mean
        log_prob = (
            torch.lgamma(count + size)
            - torch.lgamma(size)
            - torch.lgamma(count + 1)
            - (count + size) * torch.log1p(product)
            + count * product.log()
        )
        return observed_sum(log_prob.to(self._mean.dtype), observed)

    def cdf(self, x: Float[Tensor, "*#batch target"]) -> Float[Tensor, "*#batch target"]:
        from scipy.special import betainc

        count = x.detach().floor()
        size, share = (1 / self.dispersion).detach(), (1 / (1 + self.dispersion * self._mean)).detach()
        arguments = torch.broadcast_tensors(size, count.clamp(min=0.0) + 1, share)
        below = torch.as_tensor(betainc(*(a.double().cpu().numpy() for a in arguments))).to(self._mean)
        return torch.where(count < 0, 0.0, below)

    def sample(self, generator: Generator | None = None) -> Float[Tensor, "*batch target"]:
        # A Poisson count whose rate is Gamma distributed with mean mu.
        gamma = standard_gamma(1 / self.dispersion, generator)
        return poisson(gamma * self.dispersion * self._mean, generator)

    def complete(
        self,
        x: Float[Tensor, "*#batch target"],
        observed: Bool[Tensor, "*#batch target"],
        generator: Generator | None = None,
    ) -> Float[Tensor, "*batch target"]:
        return torch.where(observed, x, self.sample(generator))


class NegativeBinomialObservation(ObservationModel):
    """Log-means and log-dispersions from the read-out, learned by gradient.

    The encoder sees log(1 + count). `predict_change` predicts the ratio to the last count: log(1 + last) is added to
    the log-mean.
    """

    support = WholeNumbers(
        math.inf, "the targets of a negative binomial distribution are counts: whole numbers of at least 0"
    )

    def __init__(self, n_targets: int):
        super().__init__(n_targets, n_parameters=2 * n_targets)

    def components(self, parameters: Float[Tensor, "*batch n_parameters"]) -> NegativeBinomialComponents:
        log_mean, log_dispersion = parameters.clamp(-LARGEST_LOG, LARGEST_LOG).split(self.n_targets, dim=-1)
        return NegativeBinomialComponents(log_mean.exp(), log_dispersion.exp())

    def kernel_form(self) -> densities.NegativeBinomial:
        return densities.NegativeBinomial(LARGEST_LOG)

    def shift(
        self, parameters: Float[Tensor, "*batch n_parameters"], last_targets: Float[Tensor, "*#batch n_targets"]
    ) -> Float[Tensor, "*batch n_parameters"]:
        return super().shift(parameters, torch.log1p(last_targets))

    def features(self, x: Float[Tensor, "*batch n_inputs"]) -> Float[Tensor, "*batch n_features"]:
        counts, others = x[..., : self.n_targets], x[..., self.n_targets :]
        return torch.cat((torch.log1p(counts), others), dim=-1)
