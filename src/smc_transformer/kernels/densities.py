"""Densities in the forms that the filter's kernel evaluates: elliptical ones, counts and classes.

Elliptical distributions have

    log p(x) = constant - sum log scale + f(s),    s = |root^-1 ((x - location) / scale)|^2,

with f(s) = -s / 2 for a Gaussian and -(nu + n) / 2 log(1 + s / nu) for a Student-t. The raw parameters are the
locations, then the log-scales if there are any. The forms of counts and classes say what their raw parameters are.
"""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

Bounds = tuple[Float[Tensor, "target"], Float[Tensor, "target"]]  # lower and upper


class Elliptical(NamedTuple):
    """What is common to the distributions that an observation model gives to all particles."""

    root: Float[Tensor, "target target"]
    """Lower triangular."""
    constant: float
    log_scales: Bounds | None = None
    """None: there are no scales among the parameters."""
    degrees: float | None = None
    """Degrees of freedom of a Student-t; None: a Gaussian."""


class NegativeBinomial(NamedTuple):
    """Counts: the raw parameters are log-means, then log-dispersions; last targets are added as log(1 + count)."""

    largest_log: float
    """The parameters are kept between minus this and this."""


class Categorical(NamedTuple):
    """One target, the number of a class: the raw parameters are logits."""


Form = Elliptical | NegativeBinomial | Categorical


def gaussian(root: Float[Tensor, "target target"], log_scales: Bounds | None = None) -> Elliptical:
    """Gaussians with the covariance root root^T, times scales if there are any."""
    return Elliptical(root, -_log_determinant(root) - 0.5 * len(root) * math.log(2 * math.pi), log_scales)


def student_t(root: Float[Tensor, "target target"], log_scales: Bounds, degrees: float) -> Elliptical:
    """Student-t distributions with scales, and the correlation root root^T."""
    n = len(root)
    constant = math.lgamma((degrees + n) / 2) - math.lgamma(degrees / 2) - 0.5 * n * math.log(math.pi * degrees)
    return Elliptical(root, constant - _log_determinant(root), log_scales, degrees)


def _log_determinant(root: Float[Tensor, "target target"]) -> float:
    """Log |det root|."""
    return float(root.diagonal().abs().log().sum())
