"""Predictive distributions: weighted mixtures over particles.

At every step the particles predict X_t by the mixture sum_m W^m p(X_t | particle m). Everything a forecaster asks
for comes from that one object: mean, variance and its split, quantiles, intervals, cdf, density, samples, CRPS.
Marginal quantities (mean, variance, cdf, quantile, crps) have the shape (batch, time, target); the density is the
joint one over targets, of shape (batch, time).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.smc.resampling import multinomial

PAIRS_AT_ONCE = 4_000_000
"""How many pairs of components the CRPS handles at a time, to bound its memory."""


class VarianceParts(NamedTuple):
    """The law of total variance over particles."""

    between: Float[Tensor, "batch time target"]
    """Variance of the particles' means: what the latents are unsure of."""
    within: Float[Tensor, "batch time target"]
    """Mean of the particles' variances: the observation noise."""


class Mixture(ABC):
    """A mixture over particles of some law of the targets.

    Subclasses say what one component is; this class mixes.

    Args:
        log_weights: normalised log-weights of the components.
        means: means of the components.
    """

    def __init__(
        self,
        log_weights: Float[Tensor, "batch particle time"],
        means: Float[Tensor, "batch particle time target"],
    ):
        self.log_weights = log_weights
        self.component_means = means

    @abstractmethod
    def component_variances(self) -> Float[Tensor, "#batch #particle #time target"]:
        """Variance of each target in each component."""

    @abstractmethod
    def component_log_prob(self, x: Float[Tensor, "*batch time target"]) -> Float[Tensor, "*batch particle time"]:
        """Joint log density of the targets in each component."""

    @abstractmethod
    def component_cdf(self, x: Float[Tensor, "*batch time target"]) -> Float[Tensor, "*batch particle time target"]:
        """P(X <= x) of each target in each component."""

    @abstractmethod
    def component_quantile(self, p: float) -> Float[Tensor, "batch particle time target"]:
        """The p-quantile of each target in each component."""

    @abstractmethod
    def component_sample(
        self, means: Float[Tensor, "batch sample time target"], generator: Generator | None
    ) -> Float[Tensor, "batch sample time target"]:
        """One joint draw of the targets from the components with these means."""

    @abstractmethod
    def crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """Continuous ranked probability score, E|X - x| - E|X - X'| / 2, of each target. Lower is better."""

    @property
    def weights(self) -> Float[Tensor, "batch particle time 1"]:
        """The weights, ready to multiply the components."""
        return self.log_weights.exp().unsqueeze(-1)

    @property
    def mean(self) -> Float[Tensor, "batch time target"]:
        """E[X]."""
        return (self.weights * self.component_means).sum(dim=1)

    @property
    def variance(self) -> Float[Tensor, "batch time target"]:
        """Var[X] of each target."""
        parts = self.variance_parts()
        return parts.between + parts.within

    def variance_parts(self) -> VarianceParts:
        """The variance split into what differs between particles and what is noise within each."""
        deviations = self.component_means - self.mean.unsqueeze(1)
        between = (self.weights * deviations.square()).sum(dim=1)
        within = (self.weights * self.component_variances()).sum(dim=1)
        return VarianceParts(between, within)

    def log_prob(self, x: Float[Tensor, "*batch time target"]) -> Float[Tensor, "*batch time"]:
        """Joint log density of the targets."""
        return torch.logsumexp(self.log_weights + self.component_log_prob(x), dim=-2)

    def cdf(self, x: Float[Tensor, "*batch time target"]) -> Float[Tensor, "*batch time target"]:
        """P(X <= x) of each target; at the observed values this is the probability integral transform."""
        return (self.weights * self.component_cdf(x)).sum(dim=-3)

    def quantile(
        self, p: float | Sequence[float] | Tensor
    ) -> Float[Tensor, "batch time target"] | Float[Tensor, "level batch time target"]:
        """The p-quantile of each target, by bisection on the cdf.

        Args:
            p: one probability, or several, which then become a first axis of the answer.
        """
        levels = torch.as_tensor(p, dtype=torch.float64)
        if levels.ndim == 0:
            return self._quantile(float(levels))
        if levels.ndim > 1 or len(levels) == 0:
            raise ValueError(f"quantile takes one probability or a list of them, got {p!r}")
        return torch.stack([self._quantile(level) for level in levels.tolist()])

    def _quantile(self, p: float) -> Float[Tensor, "batch time target"]:
        if not 0.0 < p < 1.0:
            raise ValueError(f"a quantile needs a probability strictly between 0 and 1, got {p}")
        # The quantile of a mixture lies between the smallest and the largest quantile of its components.
        candidates = self.component_quantile(p)
        lower, upper = candidates.amin(dim=1), candidates.amax(dim=1)
        # Each halving gains one bit: as many as the type has, and a few to spare.
        for _ in range(4 - int(math.log2(torch.finfo(lower.dtype).eps))):
            middle = (lower + upper) / 2
            below = self.cdf(middle) < p
            lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
        return (lower + upper) / 2

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[Tensor, "batch time target"], Float[Tensor, "batch time target"]]:
        """Lower and upper end of the central interval that holds `level` of the probability."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"an interval needs a level strictly between 0 and 1, got {level}")
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def sample(self, n_samples: int, generator: Generator | None = None) -> Float[Tensor, "batch sample time target"]:
        """Independent draws: a particle by its weight, then an observation from it (joint over targets)."""
        batch, n_particles, n_steps = self.log_weights.shape
        rows = self.log_weights.transpose(1, 2).reshape(batch * n_steps, n_particles)
        chosen = multinomial(rows, n_samples, generator).view(batch, n_steps, n_samples).transpose(1, 2)
        index = chosen.unsqueeze(-1).expand(-1, -1, -1, self.component_means.shape[-1])
        return self.component_sample(self.component_means.gather(1, index), generator)


class GaussianMixture(Mixture):
    """A mixture of Gaussians that share one covariance.

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
        super().__init__(log_weights, means)
        self.root = root
        self.standard_deviations = root.square().sum(dim=-1).sqrt()

    @property
    def covariance(self) -> Float[Tensor, "target target"]:
        """The covariance of the targets in every component."""
        return self.root @ self.root.T

    def component_variances(self) -> Float[Tensor, "#batch #particle #time target"]:
        return self.standard_deviations.square().view(1, 1, 1, -1)

    def component_log_prob(self, x: Float[Tensor, "*batch time target"]) -> Float[Tensor, "*batch particle time"]:
        residual = x.unsqueeze(-3) - self.component_means
        rows = residual.reshape(-1, residual.shape[-1])
        whitened = torch.linalg.solve_triangular(self.root.T, rows, upper=True, left=False).view_as(residual)
        log_scale = self.root.diagonal().abs().log().sum() + 0.5 * residual.shape[-1] * math.log(2 * math.pi)
        return -0.5 * whitened.square().sum(dim=-1) - log_scale

    def component_cdf(self, x: Float[Tensor, "*batch time target"]) -> Float[Tensor, "*batch particle time target"]:
        return _standard_cdf((x.unsqueeze(-3) - self.component_means) / self.standard_deviations)

    def component_quantile(self, p: float) -> Float[Tensor, "batch particle time target"]:
        standard = torch.special.ndtri(torch.tensor(p, dtype=torch.float64)).to(self.component_means)
        return self.component_means + self.standard_deviations * standard

    def component_sample(
        self, means: Float[Tensor, "batch sample time target"], generator: Generator | None
    ) -> Float[Tensor, "batch sample time target"]:
        noise = torch.randn(means.shape, generator=generator, dtype=means.dtype, device=means.device)
        return means + noise @ self.root.T

    def crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """CRPS in closed form (Grimit et al., 2006): quadratic in the number of particles."""
        deviation = self.standard_deviations
        error = (self.weights * _mean_absolute(x.unsqueeze(1) - self.component_means, deviation)).sum(dim=1)
        return error - 0.5 * self._mean_absolute_difference()

    def _mean_absolute_difference(self) -> Float[Tensor, "batch time target"]:
        """E|X - X'| for two independent draws, over all pairs of components."""
        batch, n_particles, n_steps, n_targets = self.component_means.shape
        means = self.component_means.permute(0, 2, 3, 1).reshape(-1, n_particles)
        weights = self.weights.expand_as(self.component_means).permute(0, 2, 3, 1).reshape(-1, n_particles)
        deviations = (math.sqrt(2) * self.standard_deviations).repeat(batch * n_steps).view(-1, 1, 1)
        rows_at_once = max(1, PAIRS_AT_ONCE // n_particles**2)
        chunks = zip(
            means.split(rows_at_once),
            weights.split(rows_at_once),
            deviations.split(rows_at_once),
            strict=True,
        )
        differences = [
            (w.unsqueeze(1) @ _mean_absolute(m.unsqueeze(2) - m.unsqueeze(1), s) @ w.unsqueeze(2)).view(-1)
            for m, w, s in chunks
        ]
        return torch.cat(differences).view(batch, n_steps, n_targets)


def _standard_cdf(x: Tensor) -> Tensor:
    """P(Y <= x) for Y ~ N(0, 1), with full relative accuracy in the lower tail (torch's ndtr has none in float32)."""
    return 0.5 * torch.special.erfc(-x / math.sqrt(2))


def _mean_absolute(mean: Tensor, deviation: Tensor) -> Tensor:
    """E|Y| for Y ~ N(mean, deviation^2)."""
    standard = mean / deviation
    density = torch.exp(-0.5 * standard.square()) / math.sqrt(2 * math.pi)
    return 2 * deviation * density + mean * torch.special.erf(standard / math.sqrt(2))
