"""Gaussian observations, X_t ~ N(mean, S_obs), with S_obs learned by EM."""

import functools
import math

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from smc_transformer.kernels import densities
from smc_transformer.nn.covariance import COVARIANCES
from smc_transformer.nn.noise import standard_normal
from smc_transformer.nn.observation.base import ObservationModel, weighted_second_moment
from smc_transformer.nn.observation.elliptical import EllipticalComponents
from smc_transformer.nn.observation.masked import condition, observed_sum, squared_norm
from smc_transformer.predictive import Mixture
from smc_transformer.support.chunks import chunk_size

PAIRS_AT_ONCE = 250_000
"""How many pairs of components the CRPS handles at a time: what the processor's cache holds."""


class GaussianComponents(EllipticalComponents):
    """Gaussians N(location, D R D)."""

    def log_prob(
        self, x: Float[Tensor, "*#batch target"], observed: Bool[Tensor, "*#batch target"] | None = None
    ) -> Float[Tensor, "*batch"]:
        residual = (x - self.location) / self.scale
        norm, log_determinant = squared_norm(residual, self.root, observed)
        constants = observed_sum((self.scale.log() + 0.5 * math.log(2 * math.pi)).expand_as(residual), observed)
        return -0.5 * norm - log_determinant - constants

    def cdf(self, x: Float[Tensor, "*#batch target"]) -> Float[Tensor, "*#batch target"]:
        # Not torch.special.ndtr: in float32 that has no relative accuracy in the lower tail.
        return 0.5 * torch.special.erfc((self.location - x) / (self.width * math.sqrt(2)))

    def sample(self, generator: Generator | None = None) -> Float[Tensor, "*batch target"]:
        return self.place(standard_normal(tuple(self.location.shape), self.location, generator))

    def complete(
        self,
        x: Float[Tensor, "*#batch target"],
        observed: Bool[Tensor, "*#batch target"],
        generator: Generator | None = None,
    ) -> Float[Tensor, "*batch target"]:
        drawn = self.sample(generator)
        if not observed.any():
            return drawn
        standard, residual = (drawn - self.location) / self.scale, (x - drawn) / self.scale
        moved = condition(standard, residual, observed, self.root @ self.root.T)
        return torch.where(observed, x, self.location + self.scale * moved)


class ClosedFormMixture(Mixture):
    """A mixture of Gaussians, with its CRPS in closed form (Grimit et al., 2006): quadratic in the particles."""

    components: GaussianComponents

    def crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """E|X - x| - E|X - X'| / 2 of each target."""
        self._check(x)
        absolute = mean_absolute(x.unsqueeze(1) - self.components.mean, self.components.width)
        return (self.weights * absolute).sum(dim=1) - half_mean_difference(self.weights, self.components)


class GaussianMixture(ClosedFormMixture):
    """A mixture of Gaussians with one covariance, and its CRPS in closed form.

    Args:
        log_weights: normalised log-weights of the components.
        means: means of the components.
        root: lower triangular root L of the covariance L L^T of the targets in every component.

    Example:
        >>> import torch
        >>> two_bumps = GaussianMixture(
        ...     log_weights=torch.tensor([0.5, 0.5]).log().view(1, 2, 1),
        ...     means=torch.tensor([-1.0, 1.0]).view(1, 2, 1, 1),
        ...     root=torch.tensor([[0.5]]),
        ... )
        >>> two_bumps.variance.item()
        1.25
        >>> [round(end.item(), 3) for end in two_bumps.interval(0.9)]
        [-1.641, 1.641]
    """

    def __init__(
        self,
        log_weights: Float[Tensor, "batch particle time"],
        means: Float[Tensor, "batch particle time target"],
        root: Float[Tensor, "target target"],
    ):
        super().__init__(log_weights, means, functools.partial(GaussianComponents, root=root))


def half_mean_difference(
    weights: Float[Tensor, "batch particle time 1"], components: GaussianComponents
) -> Float[Tensor, "batch time target"]:
    """E|X - X'| / 2 over all pairs of Gaussian components.

    Particles stand in a ring; each is paired with those up to half a turn ahead, so that every pair is met once.
    """
    batch, n_particles, n_steps, n_targets = components.mean.shape
    half = n_particles // 2
    times_met = torch.full((half + 1,), 2.0).to(components.mean)
    times_met[0] = 1.0  # a particle and itself
    if n_particles % 2 == 0:
        times_met[half] = 1.0  # opposite particles meet from both sides

    def rows(values: Tensor) -> Tensor:
        return values.expand_as(components.mean).permute(0, 2, 3, 1).reshape(-1, n_particles)

    def ahead(values: Float[Tensor, "row particle"]) -> Float[Tensor, "row shift particle"]:
        return torch.cat([values, values[:, :half]], dim=1).unfold(1, n_particles, 1)

    at_once = chunk_size(PAIRS_AT_ONCE, n_particles * (half + 1))
    differences = []
    chunks = (rows(values).split(at_once) for values in (weights, components.mean, components.variance))
    for weight, mean, variance in zip(*chunks, strict=True):
        deviation = (variance.unsqueeze(1) + ahead(variance)).sqrt()
        pairs = mean_absolute(mean.unsqueeze(1) - ahead(mean), deviation)
        differences.append((weight.unsqueeze(1) * ahead(weight) * pairs).sum(dim=-1) @ times_met)
    return 0.5 * torch.cat(differences).view(batch, n_steps, n_targets)


def mean_absolute(mean: Tensor, deviation: Tensor) -> Tensor:
    """E|Y| for Y ~ N(mean, deviation^2)."""
    standard = mean / deviation
    density = torch.exp(-0.5 * standard.square()) / math.sqrt(2 * math.pi)
    return 2 * deviation * density + mean * torch.special.erf(standard / math.sqrt(2))


class GaussianObservation(ObservationModel):
    """X_t ~ N(mean, S_obs) (the paper); `covariance` is the structure of S_obs, `variance` its initial variance."""

    def __init__(self, n_targets: int, covariance: str = "full", variance: float = 0.5):
        super().__init__(n_targets, n_parameters=n_targets)
        self.covariance = COVARIANCES[covariance](n_targets, variance)

    def components(self, parameters: Float[Tensor, "*batch n_parameters"]) -> GaussianComponents:
        return GaussianComponents(parameters, self.covariance.root())

    def kernel_form(self) -> densities.Elliptical:
        return densities.gaussian(self.covariance.root().detach())

    def mixture(
        self,
        log_weights: Float[Tensor, "batch particle time"],
        parameters: Float[Tensor, "batch particle time n_parameters"],
    ) -> GaussianMixture:
        return GaussianMixture(log_weights, parameters, self.covariance.root().detach())

    def statistics(
        self,
        targets: Float[Tensor, "batch #trajectory time n_targets"],
        parameters: Float[Tensor, "batch trajectory time n_parameters"],
        weights: Float[Tensor, "batch trajectory"],
    ) -> Float[Tensor, "n_targets n_targets"]:
        return weighted_second_moment(targets - parameters, weights)

    def widen_(self, factor: float) -> None:
        self.covariance.assign_(factor**2 * self.covariance.matrix())

    def em_step_(self, statistics: Float[Tensor, "n_targets n_targets"], step_size: float) -> None:
        self.covariance.update_(statistics, step_size)
