"""What C needs to do the work of a layer's parts.

C does three small things for the parts of a network: it draws standard normal noise, adds the noise of trajectories to
their means, and attends along trajectories. Each has a list of conditions; `explain_draws`, `explain_perturbation` and
`explain_attention` return the reasons of those that are not met, as sentences (none: C does the work). What C does for
whole networks is decided by `inference.engine`, from these conditions and those of a network.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from smc_transformer.kernels.choice import about_numbers
from smc_transformer.nn.covariance import Covariance, DiagonalCovariance, FullCovariance, IsotropicCovariance

# --- the work of parts --------------------------------------------------------------------------------------


def explain_draws(like: Tensor) -> list[str]:
    """Why C cannot draw normal numbers like these, so that torch does it; none: it can."""
    reasons = about_numbers(like)
    if not reasons and like.dtype != torch.float32:  # there are kernels for float64, but not with its precision
        reasons = ["those of C have the precision of float32"]
    return [f"normal draws in torch: {reason}" for reason in reasons]


def explain_perturbation(covariance: Covariance, eps: Tensor) -> list[str]:
    """Why C cannot add S^(1/2) eps along trajectories, so that torch does it; none: it can."""
    reasons = [*about_numbers(eps), *about_factors([covariance]), *about_noise([eps])]
    return [f"noise of trajectories in torch: {reason}" for reason in reasons]


def explain_attention(like: Tensor) -> list[str]:
    """Why C cannot attend along trajectories, so that torch does it; none: it can."""
    return [f"attention of trajectories in torch: {reason}" for reason in about_numbers(like)]


# --- conditions ---------------------------------------------------------------------------------------------


def about_factors(covariances: Iterable[Covariance]) -> list[str]:
    """Noise is scaled by a number for each coordinate: the only `scale` along trajectories that C knows."""
    for covariance in covariances:
        if isinstance(covariance, FullCovariance):
            return ["the covariance of a noise is full"]
        if type(covariance) not in (IsotropicCovariance, DiagonalCovariance) or "scale" in vars(covariance):
            return ["the covariance of a noise was replaced"]
    return []


def about_noise(noise: Iterable[Tensor]) -> list[str]:
    """The noise is a constant: C has no gradient for it."""
    return ["gradients of the noise are wanted"] if any(eps.requires_grad for eps in noise) else []
