"""Predictive distributions: weighted mixtures over particles.

At every step the particles predict X_t by the mixture sum_m W^m p(X_t | particle m). Everything a forecaster asks
for comes from that one object: mean, variance and its split, quantiles, intervals, cdf, density, samples, CRPS.
Marginal quantities (mean, variance, cdf, quantile, crps) have the shape (batch, time, target); the density is the
joint one over targets, of shape (batch, time).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from smc_transformer.kernels.choice import about_numbers, in_c
from smc_transformer.kernels.draws import invert_masses as invert_in_c
from smc_transformer.smc.randomness import draw_uniform
from smc_transformer.smc.resampling.base import draw_uniforms, invert_masses, probabilities
from smc_transformer.support.randomness import Randomness, as_generator

CRPS_NODES = 96
"""Nodes of the CRPS integral, on either side of the observation."""

MOST_COUNTS = 2000
"""Counts up to this are summed one by one; for larger ones the integral over nodes is close enough."""

Interval = tuple[Float[Tensor, "batch time target"], Float[Tensor, "batch time target"]]
"""Lower and upper ends."""


@runtime_checkable
class Predictive(Protocol):
    """Distributions of several steps and targets, which scores are made of: `Mixture`, and those of `empirical`.

    What a distribution does not have (an interval of a point, a density of draws) is None, as in those that inherit it.
    """

    @property
    def mean(self) -> Tensor:
        """Mean, (batch, time, target)."""

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor] | None:
        """Ends of the central interval, (batch, time, target) each."""
        return None

    def cdf(self, x: Tensor) -> Tensor | None:
        """P(X <= x) of each target."""
        return None

    def crps(self, x: Tensor) -> Tensor:
        """Continuous ranked probability score of each target."""

    def log_prob(self, x: Tensor) -> Tensor | None:
        """Joint log density of the targets, (batch, time); NaN is integrated out."""
        return None

    def sample(self, n_samples: int, generator: Randomness = None) -> Tensor:
        """Draws, (batch, sample, time, target)."""


class Components(ABC):
    """Distributions of the targets, one for each leading index: the components of a mixture."""

    discrete = False  # whether the targets are whole numbers from 0 on

    @property
    @abstractmethod
    def mean(self) -> Float[Tensor, "*batch target"]:
        """Mean of each target."""

    @property
    @abstractmethod
    def variance(self) -> Float[Tensor, "*batch target"]:
        """Variance of each target."""

    @property
    def covariance(self) -> Float[Tensor, "*#batch target target"]:
        """Covariance matrix of the targets."""
        return self.variance.diag_embed()

    @abstractmethod
    def log_prob(
        self, x: Float[Tensor, "*#batch target"], observed: Bool[Tensor, "*#batch target"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """Joint log density of the targets, or of those that are observed, the others integrated out."""

    @abstractmethod
    def cdf(self, x: Float[Tensor, "*#batch target"]) -> Float[Tensor, "*#batch target"]:
        """P(X <= x) of each target."""

    @abstractmethod
    def sample(self, generator: Generator | None = None) -> Float[Tensor, "*batch target"]:
        """One joint draw from each."""

    @abstractmethod
    def complete(
        self,
        x: Float[Tensor, "*#batch target"],
        observed: Bool[Tensor, "*#batch target"],
        generator: Generator | None = None,
    ) -> Float[Tensor, "*batch target"]:
        """X with its unobserved targets drawn given the observed ones."""


class VarianceParts(NamedTuple):
    """The distribution of total variance over particles."""

    between: Float[Tensor, "batch time target"]  # variance of the particles' means: what the latents are unsure of
    within: Float[Tensor, "batch time target"]  # mean of the particles' variances: the observation noise


class Mixture:
    """A mixture over particles of some distribution of the targets, with normalised log-weights of the components."""

    def __init__(
        self,
        log_weights: Float[Tensor, "batch particle time"],
        parameters: Float[Tensor, "batch particle time parameter"],
        components_of: Callable[[Tensor], Components],
    ):
        self.log_weights, self.parameters, self.components_of = log_weights, parameters, components_of
        self.components = components_of(parameters)

    @property
    def weights(self) -> Float[Tensor, "batch particle time 1"]:
        """The weights, ready to multiply the components."""
        return self.log_weights.exp().unsqueeze(-1)

    @property
    def mean(self) -> Float[Tensor, "batch time target"]:
        """E[X]."""
        return (self.weights * self.components.mean).sum(dim=1)

    @property
    def variance(self) -> Float[Tensor, "batch time target"]:
        """Var[X] of each target."""
        parts = self.variance_parts()
        return parts.between + parts.within

    def variance_parts(self) -> VarianceParts:
        """The variance split into what differs between particles and what is noise within each."""
        deviations = self.components.mean - self.mean.unsqueeze(1)
        between = (self.weights * deviations.square()).sum(dim=1)
        within = (self.weights * self.components.variance).sum(dim=1)
        return VarianceParts(between, within)

    def log_prob(self, x: Float[Tensor, "*batch time target"]) -> Float[Tensor, "*batch time"]:
        """Joint log density of the targets; NaN counts as not observed, and is integrated out."""
        self._check(x)
        observed = None if not x.isnan().any() else ~x.isnan().unsqueeze(-3)
        return torch.logsumexp(self.log_weights + self.components.log_prob(x.unsqueeze(-3), observed), dim=-2)

    def cdf(self, x: Float[Tensor, "*batch time target"]) -> Float[Tensor, "*batch time target"]:
        """P(X <= x) of each target; at the observed values this is the probability integral transform."""
        self._check(x)
        return (self.weights * self.components.cdf(x.unsqueeze(-3))).sum(dim=-3)

    def pit(
        self, x: Float[Tensor, "batch time target"], generator: Randomness = None
    ) -> Float[Tensor, "batch time target"]:
        """The probability integral transform: uniform when the forecasts are calibrated, whatever the distribution.

        For whole numbers it is drawn between P(X < x) and P(X <= x), which makes it uniform too.
        """
        upper = self.cdf(x)
        if not self.components.discrete:
            return upper
        lower = self.cdf(x - 1)
        share = draw_uniform(tuple(x.shape), x, as_generator(generator, x.device))
        return lower + share * (upper - lower)

    def quantile(
        self, p: float | Sequence[float] | Tensor
    ) -> Float[Tensor, "batch time target"] | Float[Tensor, "level batch time target"]:
        """The p-quantile of each target, by bisection on the cdf; several probabilities become a first axis."""
        levels = torch.as_tensor(p, dtype=torch.float64)
        if levels.ndim == 0:
            return self._quantile(float(levels))
        if levels.ndim > 1 or len(levels) == 0:
            raise ValueError(f"quantile takes one probability or a list of them, got {p!r}")
        return torch.stack([self._quantile(level) for level in levels.tolist()])

    def _quantile(self, p: float) -> Float[Tensor, "batch time target"]:
        lower, upper = self._bracket(p)
        return upper.round().clamp(min=0.0) if self.components.discrete else (lower + upper) / 2

    def _bracket(self, p: float) -> Interval:
        """Values as close together as rounding allows, with the cdf below p at the lower one and not at the upper."""
        if not 0.0 < p < 1.0:
            raise ValueError(f"a quantile needs a probability strictly between 0 and 1, got {p}")
        # Cantelli's inequality bounds the quantiles of any distribution by its mean and deviation.
        mean, deviation = self.mean, self.variance.sqrt()
        lower = mean - deviation * (math.sqrt((1 - p) / p) + 1e-3)
        upper = mean + deviation * (math.sqrt(p / (1 - p)) + 1e-3)
        # Each halving gains one bit: as many as the type has, and more where the bounds are wide.
        n_bits = 8 - math.log2(torch.finfo(lower.dtype).eps) + abs(math.log2(min(p, 1 - p))) / 2
        for _ in range(int(n_bits)):
            middle = (lower + upper) / 2
            below = self.cdf(middle) < p
            lower, upper = torch.where(below, middle, lower), torch.where(below, upper, middle)
        return lower, upper

    def interval(self, level: float = 0.95) -> Interval:
        """Lower and upper end of the central interval that holds `level` of the probability."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"an interval needs a level strictly between 0 and 1, got {level}")
        return self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)

    def sample(self, n_samples: int, generator: Randomness = None) -> Float[Tensor, "batch sample time target"]:
        """Independent draws: a particle by its weight, then an observation from it (joint over targets)."""
        generator = as_generator(generator, self.log_weights.device)
        batch, n_particles, n_steps = self.log_weights.shape
        rows = self.log_weights.transpose(1, 2).reshape(batch * n_steps, n_particles)
        masses, uniforms = probabilities(rows), draw_uniforms(rows, n_samples, generator)  # as in `multinomial`
        # A thousand draws from each mixture: more than resampling ever needs, and worth a kernel.
        if in_c([f"draws from mixtures in torch: {reason}" for reason in about_numbers(rows)]):
            found = invert_in_c(masses, uniforms, rows)
        else:
            found = invert_masses(masses, uniforms)
        chosen = found.view(batch, n_steps, n_samples).transpose(1, 2)
        index = chosen.unsqueeze(-1).expand(-1, -1, -1, self.parameters.shape[-1])
        return self.components_of(self.parameters.gather(1, index)).sample(generator)

    def crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """Continuous ranked probability score of each target, the integral of (F(y) - 1{y >= x})^2. Lower is better."""
        self._check(x)
        if not self.components.discrete:
            return self._integrated_crps(x)
        highest = torch.maximum(self._quantile(1 - 1e-6), x)
        few = highest <= MOST_COUNTS
        total = torch.zeros_like(x)
        for count in range(int(highest[few].max()) + 1 if few.any() else 0):
            total += (self.cdf(torch.full_like(x, count)) - (count >= x).to(x)).square()
        total = torch.where(x.isnan(), x, total)
        return total if few.logical_or(x.isnan()).all() else torch.where(few, total, self._integrated_crps(x))

    def _integrated_crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """The integral by Gauss-Legendre nodes on either side of x, at distances scale * sinh(u).

        So nodes are dense at x and reach far into the tails. The scale is that of the middle half, not the deviation,
        which a single wide component can blow up.
        """
        deviation, centre = self.variance.sqrt(), self._quantile(0.5)
        scale = (self._quantile(0.75) - self._quantile(0.25)) / 1.35
        scale = torch.maximum(scale, torch.full_like(scale, 0.5) if self.components.discrete else 1e-6 * deviation)
        reach = torch.asinh((200 * deviation + (x - centre).abs()) / scale)
        total = torch.zeros_like(x)
        for node, weight in zip(*np.polynomial.legendre.leggauss(CRPS_NODES), strict=True):
            u = reach * float(node + 1) / 2
            distance = scale * u.sinh()
            tails = self.cdf(x - distance).square() + (1 - self.cdf(x + distance)).square()
            total += float(weight) / 2 * tails * u.cosh()
        return total * scale * reach

    def _check(self, x: Tensor) -> None:
        """Whether x has the mixture's steps and targets (torch would broadcast many wrong shapes silently)."""
        batch, _, n_steps, n_targets = self.components.mean.shape
        if tuple(x.shape[-3:]) != (batch, n_steps, n_targets):
            expected = f"(batch={batch}, time={n_steps}, target={n_targets})"
            raise ValueError(f"expected values of shape {expected}, got {tuple(x.shape)}")
