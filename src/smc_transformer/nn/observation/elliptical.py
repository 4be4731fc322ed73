"""Distributions with elliptical densities, in the form that the filter's kernel evaluates.

    log p(x) = constant - sum log scale + f(s),    s = |root^-1 ((x - location) / scale)|^2,

with f(s) = -s / 2 for a Gaussian and -(nu + n) / 2 log(1 + s / nu) for a Student-t. The raw parameters are the
locations, then the log-scales if there are any.
"""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from smc_transformer.nn.observation.base import ObservationModel


class Elliptical(NamedTuple):
    """What is common to the distributions that an observation model gives to all particles."""

    root: Float[Tensor, "target target"]
    """Lower triangular."""
    constant: float
    log_scales: tuple[Float[Tensor, "target"], Float[Tensor, "target"]] | None = None
    """Lower and upper bounds of the log-scales; None: there are no scales among the parameters."""
    degrees: float | None = None
    """Degrees of freedom of a Student-t; None: a Gaussian."""


def elliptical(distribution: ObservationModel) -> Elliptical | None:
    """How the kernel should see this distribution; None if it has not said.

    A subclass has to say so itself: it may have changed anything that its parent's answer relied on.
    """
    if "elliptical" not in vars(type(distribution)):
        return None
    found: Elliptical = distribution.elliptical()  # type: ignore[operator]
    return found


def half_log_determinant(root: Float[Tensor, "target target"]) -> float:
    """Log det root."""
    return float(root.diagonal().abs().log().sum())


def gaussian_constant(root: Float[Tensor, "target target"]) -> float:
    """The logarithm of a Gaussian's density at its mean, for scales of one."""
    return -half_log_determinant(root) - 0.5 * len(root) * math.log(2 * math.pi)
