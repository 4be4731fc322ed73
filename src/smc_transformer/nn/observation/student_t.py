"""Student-t observations: heavy tails, with state-dependent scales and a correlation between the targets.

X_t = mean + D R^(1/2) eps / sqrt(g) with g ~ Gamma(nu/2, nu/2) shared by the targets of a step: a multivariate t. An
outlier gets a small g, so it moves the correlation and the particles' weights less than under a Gaussian.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from smc_transformer.kernels import densities
from smc_transformer.nn.noise import standard_normal
from smc_transformer.nn.observation.elliptical import EllipticalComponents
from smc_transformer.nn.observation.masked import apply_root, condition, observed_sum, squared_norm
from smc_transformer.nn.observation.scaled import ScaledObservation
from smc_transformer.nn.streams import standard_gamma

LEAST_DEGREES = 2.1
"""Degrees of freedom stay above this, so that variances exist."""


class StudentTComponents(EllipticalComponents):
    """Multivariate t distributions; R is a correlation, `degrees` are their degrees of freedom, a number."""

    def __init__(
        self,
        location: Float[Tensor, "*batch target"],
        root: Float[Tensor, "target target"],
        scale: Float[Tensor, "*batch target"],
        degrees: Float[Tensor, ""],
    ):
        super().__init__(location, root, scale)
        self.degrees = degrees

    def inflated(self, squared_width: Float[Tensor, "*_"]) -> Float[Tensor, "*_"]:
        return squared_width * self.degrees / (self.degrees - 2)

    def log_prob(
        self, x: Float[Tensor, "*#batch target"], observed: Bool[Tensor, "*#batch target"] | None = None
    ) -> Float[Tensor, "*batch"]:
        norm, log_determinant = squared_norm((x - self.location) / self.scale, self.root, observed)
        nu = self.degrees
        size = self.location.new_tensor(self.location.shape[-1])  # one number for all rows: its lgamma is slow
        if observed is not None:
            size = observed_sum(torch.ones_like(self.location), observed)
        constant = torch.lgamma((nu + size) / 2) - torch.lgamma(nu / 2) - 0.5 * size * torch.log(math.pi * nu)
        log_determinant = log_determinant + observed_sum(self.scale.log(), observed)
        return constant - log_determinant - 0.5 * (nu + size) * torch.log1p(norm / nu)

    def cdf(self, x: Float[Tensor, "*#batch target"]) -> Float[Tensor, "*#batch target"]:
        from scipy.special import stdtr

        standard = ((x - self.location) / self.width).detach()
        return torch.as_tensor(stdtr(self.degrees.item(), standard.double().cpu().numpy())).to(standard)

    def sample(self, generator: Generator | None = None) -> Float[Tensor, "*batch target"]:
        half = self.degrees / 2
        precision = draw_gamma(half, half, self.location.shape[:-1], self.location, generator)
        return self.location + self.scale * self._gaussian(generator) / precision.sqrt()

    def complete(
        self,
        x: Float[Tensor, "*#batch target"],
        observed: Bool[Tensor, "*#batch target"],
        generator: Generator | None = None,
    ) -> Float[Tensor, "*batch target"]:
        if not observed.any():
            return self.sample(generator)
        # What is observed tells about the precision g that all targets share: g | X_o is a Gamma again.
        residual = (x - self.location) / self.scale
        norm, _ = squared_norm(residual, self.root, observed)
        shape = (self.degrees + observed.sum(dim=-1)) / 2
        precision = draw_gamma(shape, (self.degrees + norm) / 2, norm.shape, self.location, generator)
        # Given g, the targets are Gaussian with covariance D R D / g.
        standard = self._gaussian(generator)
        moved = condition(standard, residual * precision.sqrt() - standard, observed, self.root @ self.root.T)
        return torch.where(observed, x, self.location + self.scale * moved / precision.sqrt())

    def _gaussian(self, generator: Generator | None) -> Tensor:
        return apply_root(self.root, standard_normal(tuple(self.location.shape), self.location, generator))


def draw_gamma(
    shape: Tensor, rate: Tensor, rows: tuple[int, ...], like: Tensor, generator: Generator | None
) -> Float[Tensor, "*rows 1"]:
    """Draws of Gamma(shape, rate), one for each row of targets: their precision."""
    draws = standard_gamma(shape.to(like).expand(rows), generator)
    return (draws / rate).clamp(min=torch.finfo(like.dtype).tiny).unsqueeze(-1)


class StudentTObservation(ScaledObservation):
    """Locations, scales and the degrees of freedom by gradient, the correlation by EM.

    `variance` is the initial square of the scales, `degrees` the initial degrees of freedom.
    """

    def __init__(self, n_targets: int, variance: float = 0.5, degrees: float = 8.0):
        super().__init__(n_targets, variance)
        self.raw_degrees = nn.Parameter(torch.empty(()))
        self.set_degrees_(degrees)

    @property
    def degrees(self) -> Float[Tensor, ""]:
        """Degrees of freedom nu."""
        return LEAST_DEGREES + F.softplus(self.raw_degrees)

    @torch.no_grad()
    def set_degrees_(self, degrees: float) -> None:
        """Give the noise other tails; its scale stays."""
        if not LEAST_DEGREES < degrees < math.inf:
            raise ValueError(f"degrees must be above {LEAST_DEGREES} and finite, got {degrees}")
        above = torch.tensor(degrees - LEAST_DEGREES)
        self.raw_degrees.copy_(above + torch.log(-torch.expm1(-above)))  # the inverse of softplus

    def components(self, parameters: Float[Tensor, "*batch n_parameters"]) -> StudentTComponents:
        location, scale = self.location_and_scale(parameters)
        return StudentTComponents(location, self.root(), scale, self.degrees)

    def standard_draws(
        self, shape: tuple[int, ...], like: Tensor, generator: Generator | None
    ) -> Float[Tensor, "*batch n_targets"]:
        half = self.degrees / 2
        precision = draw_gamma(half, half, shape, like, generator)
        return super().standard_draws(shape, like, generator) / precision.sqrt()

    def kernel_form(self) -> densities.Elliptical:
        return densities.student_t(self.root(), self.bounds(), float(self.degrees.detach()))

    def standardised(
        self,
        targets: Float[Tensor, "batch #trajectory time n_targets"],
        parameters: Float[Tensor, "batch trajectory time n_parameters"],
    ) -> Float[Tensor, "batch trajectory time n_targets"]:
        # E[g | X] weights each residual: the M-step of a t distribution is that of a Gaussian with these precisions.
        residuals = super().standardised(targets, parameters)
        norm, _ = squared_norm(residuals, self.root())
        return residuals * ((self.degrees + self.n_targets) / (self.degrees + norm)).sqrt().unsqueeze(-1)
