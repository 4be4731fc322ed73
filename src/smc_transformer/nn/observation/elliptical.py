"""Distributions with elliptical contours, which the Gaussian and the Student-t distribution have in common."""

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.nn.observation.masked import apply_root
from smc_transformer.predictive import Components


class EllipticalComponents(Components):
    """Distributions with the centre `location` and a covariance in proportion to D R D.

    Each has its own D = diag(scale), the identity if there is none; R = root root^T, with a lower triangular root, is
    common to all.
    """

    def __init__(
        self,
        location: Float[Tensor, "*batch target"],
        root: Float[Tensor, "target target"],
        scale: Float[Tensor, "*batch target"] | None = None,
    ):
        self.location = location
        self.root = root
        self.scale = torch.ones_like(location[..., :1]) if scale is None else scale

    @property
    def mean(self) -> Float[Tensor, "*batch target"]:
        return self.location

    @property
    def width(self) -> Float[Tensor, "*#batch target"]:
        """Scale of each target alone."""
        return self.scale * self.root.square().sum(dim=-1).sqrt()

    @property
    def variance(self) -> Float[Tensor, "*batch target"]:
        return self.inflated(self.width.square()).expand_as(self.location)

    @property
    def covariance(self) -> Float[Tensor, "*#batch target target"]:
        return self.scale.unsqueeze(-1) * self.inflated(self.root @ self.root.T) * self.scale.unsqueeze(-2)

    def place(self, draws: Float[Tensor, "*batch target"]) -> Float[Tensor, "*batch target"]:
        """The targets that draws of the standard distribution stand for."""
        return self.location + self.scale * apply_root(self.root, draws)

    def inflated(self, squared_width: Float[Tensor, "*_"]) -> Float[Tensor, "*_"]:
        """The variance of a target of this squared width: the same, unless the tails are heavy."""
        return squared_width
