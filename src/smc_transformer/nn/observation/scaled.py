"""Observation models with a location and a scale for each target (by the read-out) and a correlation learned by EM.

The covariance of X_t is D R D (times a constant): D = diag(scales) depends on the state, so calm and stormy stretches
get intervals of their own; R is common to all steps, so sampled targets do not contradict each other.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.nn.observation.base import ObservationModel, weighted_mean, weighted_second_moment

CORRELATION_FLOOR = 1e-3
"""Smallest eigenvalue of a learned correlation: one target may be almost a function of the others."""


class ScaleStatistics(NamedTuple):
    """What EM needs of a batch: the correlation of standardised residuals, and the range of the scales."""

    correlation: Float[Tensor, "target target"]
    lowest: Float[Tensor, "target"]
    highest: Float[Tensor, "target"]


class ScaledObservation(ObservationModel):
    """Raw parameters are locations and log-scales.

    In evaluation mode (`model.eval()`, where the trainer leaves a model) log-scales are kept within the range that
    training saw: once a model reads its own samples, scales could otherwise run away. `variance` is the initial square
    of the scales.
    """

    correlation: Tensor
    lowest: Tensor
    highest: Tensor
    widening: Tensor

    def __init__(self, n_targets: int, variance: float = 0.5):
        super().__init__(n_targets, n_parameters=2 * n_targets)
        self.initial_log_scale = 0.5 * math.log(variance)
        self.register_buffer("correlation", torch.eye(n_targets))
        self.register_buffer("lowest", torch.full((n_targets,), -math.inf))
        self.register_buffer("highest", torch.full((n_targets,), math.inf))
        self.register_buffer("widening", torch.ones(()))

    def initial_parameters(self) -> Float[Tensor, "n_parameters"]:
        start = torch.zeros(self.n_parameters)
        start[self.n_targets : 2 * self.n_targets] = self.initial_log_scale
        return start

    def location_and_scale(
        self, parameters: Float[Tensor, "*batch n_parameters"]
    ) -> tuple[Float[Tensor, "*batch n_targets"], Float[Tensor, "*batch n_targets"]]:
        """The two halves of the raw parameters, made into locations and scales."""
        log_scale = torch.clamp(parameters[..., self.n_targets : 2 * self.n_targets], *self.bounds())
        return parameters[..., : self.n_targets], log_scale.exp()

    def bounds(self) -> tuple[Float[Tensor, "n_targets"], Float[Tensor, "n_targets"]]:
        """The range within which log-scales are kept."""
        if self.training:
            return torch.full_like(self.lowest, -math.inf), torch.full_like(self.highest, math.inf)
        return self.lowest, self.highest

    def root(self) -> Float[Tensor, "n_targets n_targets"]:
        """Lower triangular root of the correlation, times the widening."""
        return self.widening * torch.linalg.cholesky(self.correlation.double()).to(self.correlation.dtype)

    @torch.no_grad()
    def widen_(self, factor: float) -> None:
        self.widening.mul_(factor)

    def range_of_scales(
        self, parameters: Float[Tensor, "*batch n_parameters"]
    ) -> tuple[Float[Tensor, "n_targets"], Float[Tensor, "n_targets"]]:
        """Smallest and largest log-scale of each target."""
        rows = parameters[..., self.n_targets : 2 * self.n_targets].detach().reshape(-1, self.n_targets)
        return rows.amin(dim=0), rows.amax(dim=0)

    def standardised(
        self,
        targets: Float[Tensor, "batch #trajectory time n_targets"],
        parameters: Float[Tensor, "batch trajectory time n_parameters"],
    ) -> Float[Tensor, "batch trajectory time n_targets"]:
        """Residuals of unit scale, whose second moment moves the correlation."""
        location, scale = self.location_and_scale(parameters)
        return (targets - location) / scale

    def statistics(
        self,
        targets: Float[Tensor, "batch #trajectory time n_targets"],
        parameters: Float[Tensor, "batch trajectory time n_parameters"],
        weights: Float[Tensor, "batch trajectory"],
    ) -> ScaleStatistics:
        moment = weighted_second_moment(self.standardised(targets, parameters), weights)
        return ScaleStatistics(moment, *self.range_of_scales(parameters))

    def forecast_statistics(self, parameters: Float[Tensor, "batch path horizon n_parameters"]) -> ScaleStatistics:
        return ScaleStatistics(self.correlation, *self.range_of_scales(parameters))

    def merge(self, statistics: list[ScaleStatistics], shares: list[float]) -> ScaleStatistics:
        return ScaleStatistics(
            weighted_mean([part.correlation for part in statistics], shares),
            torch.stack([part.lowest for part in statistics]).amin(dim=0),
            torch.stack([part.highest for part in statistics]).amax(dim=0),
        )

    @torch.no_grad()
    def em_step_(self, statistics: ScaleStatistics, step_size: float) -> None:
        # Scaled to unit diagonal first: otherwise a batch with one outlier would outweigh all others.
        seen = nearest_correlation(statistics.correlation)
        self.correlation.copy_(nearest_correlation((1 - step_size) * self.correlation + step_size * seen))
        # A new extreme counts at once, an old one fades.
        lowest = torch.where(self.lowest.isinf(), statistics.lowest, self.lowest)
        highest = torch.where(self.highest.isinf(), statistics.highest, self.highest)
        self.lowest.copy_(torch.minimum(statistics.lowest, lowest + step_size * (statistics.lowest - lowest)))
        self.highest.copy_(torch.maximum(statistics.highest, highest + step_size * (statistics.highest - highest)))


def nearest_correlation(matrix: Float[Tensor, "size size"]) -> Float[Tensor, "size size"]:
    """A second moment scaled to unit diagonal, its eigenvalues floored."""
    deviations = matrix.double().diagonal().clamp(min=1e-12).sqrt()
    scaled = matrix.double() / (deviations.unsqueeze(-1) * deviations)
    eigenvalues, vectors = torch.linalg.eigh((scaled + scaled.T) / 2)
    floored = (vectors * eigenvalues.clamp(min=CORRELATION_FLOOR)) @ vectors.T
    deviations = floored.diagonal().sqrt()
    return (floored / (deviations.unsqueeze(-1) * deviations)).to(matrix.dtype)
