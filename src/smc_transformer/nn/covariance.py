"""Covariances S of the Gaussian noises, kept as a factor S^(1/2) with S = S^(1/2) S^(1/2)^T.

Three structures, one class each: isotropic (a number), diagonal (a vector) and full (a lower triangle).
A covariance is learned either by gradient, through the factor, or by EM, through `update_`. One that is exactly zero
means "no noise here": it has no density, and neither way of learning moves it.
"""

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

VARIANCE_FLOOR = 1e-6
"""EM keeps every eigenvalue at or above this (the data are scaled to about unit variance)."""


class Covariance(nn.Module, ABC):
    """A learnable covariance matrix; an initial `variance` of 0 switches the noise off."""

    factor: nn.Parameter

    def __init__(self, size: int, variance: float, *, learn_by_gradient: bool = False):
        super().__init__()
        self.size = size
        self.learn_by_gradient = learn_by_gradient
        factor = self._factor_of((variance or 1.0) * torch.eye(size), floor=0.0)
        self.factor = nn.Parameter(
            factor if variance > 0 else torch.zeros_like(factor), requires_grad=learn_by_gradient
        )

    @abstractmethod
    def matrix(self) -> Float[Tensor, "size size"]:
        """S itself."""

    @abstractmethod
    def scale(self, noise: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch size"]:
        """S^(1/2) noise: standard normal noise becomes noise of this covariance."""

    @abstractmethod
    def whiten(self, residual: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch size"]:
        """S^(-1/2) residual: the inverse of `scale`."""

    @abstractmethod
    def half_log_determinant(self) -> Float[Tensor, ""]:
        """Log det S^(1/2)."""

    @abstractmethod
    def _factor_of(self, matrix: Float[Tensor, "size size"], floor: float) -> Tensor:
        """The factor of the matrix nearest to `matrix` in this structure, its eigenvalues floored."""

    def root(self) -> Float[Tensor, "size size"]:
        """S^(1/2) as a lower triangular matrix."""
        return self.scale(self._identity()).T

    def _identity(self) -> Float[Tensor, "size size"]:
        return torch.eye(self.size, dtype=self.factor.dtype, device=self.factor.device)

    @property
    def is_zero(self) -> bool:
        """Whether this noise is switched off."""
        return not bool(self.factor.detach().any())

    @property
    def by_gradient(self) -> bool:
        """Whether an optimiser may move the factor."""
        return self.learn_by_gradient and not self.is_zero

    def learn_by_gradient_(self, wanted: bool) -> None:
        """Ask for gradients of the factor, or leave it to EM."""
        self.learn_by_gradient = wanted
        self.factor.requires_grad_(wanted)

    def log_density(self, residual: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch"]:
        """Log N(residual; 0, S)."""
        squared_norm = self.whiten(residual).square().sum(dim=-1)
        return -0.5 * squared_norm - self.half_log_determinant() - 0.5 * self.size * math.log(2 * math.pi)

    @torch.no_grad()
    def assign_(self, matrix: Float[Tensor, "size size"] | float, floor: float = 0.0) -> None:
        """Set S to a matrix, or to a variance times the identity, projected to the structure.

        Zero switches the noise off: learning leaves it at zero.
        """
        if not isinstance(matrix, Tensor):
            matrix = matrix * self._identity()
        if matrix.shape != (self.size, self.size):
            raise ValueError(f"the covariance must be {self.size} x {self.size}, got {tuple(matrix.shape)}")
        if not matrix.isfinite().all() or (matrix.diagonal() < 0).any():
            raise ValueError("the covariance must be finite, with variances of at least 0")
        self.factor.copy_(self._factor_of(matrix.to(self.factor), floor) if matrix.any() else torch.zeros(()))

    @torch.no_grad()
    def update_(self, second_moment: Float[Tensor, "size size"], step_size: float) -> None:
        """The EM step S <- (1 - step_size) S + step_size * second_moment, projected to the structure."""
        if not self.is_zero:
            self.assign_((1 - step_size) * self.matrix() + step_size * second_moment, floor=VARIANCE_FLOOR)


class DiagonalCovariance(Covariance):
    """S = diag(s^2); the factor is the vector s."""

    def matrix(self) -> Float[Tensor, "size size"]:
        return self.factor.square().diag()

    def scale(self, noise: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch size"]:
        return self.factor * noise

    def whiten(self, residual: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch size"]:
        return residual / self.factor

    def half_log_determinant(self) -> Float[Tensor, ""]:
        return self.factor.abs().log().sum()

    def _factor_of(self, matrix: Float[Tensor, "size size"], floor: float) -> Tensor:
        return matrix.diagonal().clamp(min=floor).sqrt()


class IsotropicCovariance(DiagonalCovariance):
    """S = s^2 I; the factor is the number s."""

    def matrix(self) -> Float[Tensor, "size size"]:
        return self.factor.square() * self._identity()

    def half_log_determinant(self) -> Float[Tensor, ""]:
        return self.size * self.factor.abs().log()

    def _factor_of(self, matrix: Float[Tensor, "size size"], floor: float) -> Tensor:
        return matrix.diagonal().mean().clamp(min=floor).sqrt()


class FullCovariance(Covariance):
    """S = L L^T; the factor is the lower triangular L."""

    def matrix(self) -> Float[Tensor, "size size"]:
        lower = self.factor.tril()
        return lower @ lower.T

    def scale(self, noise: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch size"]:
        return noise @ self.factor.tril().T

    def whiten(self, residual: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch size"]:
        rows = residual.reshape(-1, self.size)
        whitened = torch.linalg.solve_triangular(self.factor.tril().T, rows, upper=True, left=False)
        return whitened.view_as(residual)

    def half_log_determinant(self) -> Float[Tensor, ""]:
        return self.factor.diagonal().abs().log().sum()

    def _factor_of(self, matrix: Float[Tensor, "size size"], floor: float) -> Tensor:
        # In float64: a float32 Cholesky may fail on eigenvalues near the floor.
        eigenvalues, vectors = torch.linalg.eigh((matrix.double() + matrix.double().T) / 2)
        positive = max(floor, 1e-14 * float(eigenvalues[-1]), 1e-100)  # Cholesky takes no zero eigenvalue
        floored = (vectors * eigenvalues.clamp(min=positive)) @ vectors.T
        return torch.linalg.cholesky(floored).to(matrix.dtype)


COVARIANCES: dict[str, type[Covariance]] = {
    "isotropic": IsotropicCovariance,
    "diagonal": DiagonalCovariance,
    "full": FullCovariance,
}
