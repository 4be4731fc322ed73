"""Expectation-maximisation for the covariances.

For a Gaussian noise the M-step is the posterior second moment of its residual. With residuals along smoothing
lines, averaged over lines (by weight), steps and batch,

    S^p = mean of r r^T,        S <- (1 - eta_p) S + eta_p S^p,        eta_p = p^-0.6,

projected to the structure of S. It runs outside of any gradient, once for each batch p = 1, 2, ...
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.nn.attention import Noise

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class SecondMoments(NamedTuple):
    """Posterior second moments of the residuals of one batch."""

    observation: Float[Tensor, "n_targets n_targets"]
    latent: dict[str, Float[Tensor, "d_model d_model"]]
    """By the name of the noise; empty when the latent covariances are learned by gradient."""


def power_step_size(exponent: float = 0.6, offset: int = 0) -> Callable[[int], float]:
    """Step sizes eta_p = (p + offset)^-exponent for p = 1, 2, ...; the paper has 0.6 and no offset.

    Without an offset the first step replaces the initial covariance altogether. An offset of some hundred steps
    and a small initial observation variance let the particles compete for the data before S_obs explains
    everything: what a multimodal law needs (docs/learning.md).
    """
    if not 0.5 < exponent <= 1.0:
        raise ValueError(f"stochastic EM converges for exponents in (0.5, 1], got {exponent}")
    if offset < 0:
        raise ValueError(f"offset must be at least 0, got {offset}")
    return lambda p: float((p + offset) ** -exponent)


@torch.no_grad()
def second_moments(
    model: "SMCTransformer",
    residuals: Float[Tensor, "batch line time n_targets"],
    noise: Noise,
    log_weights: Float[Tensor, "batch line"],
) -> SecondMoments:
    """The M-step's statistics from the lines of one batch.

    Args:
        model: the model whose covariances are learned.
        residuals: X_t minus its mean along each line.
        noise: the standard noise of each line; its latent residual is S^(1/2) eps.
        log_weights: normalised log-weights of the lines.
    """
    latent = {}
    if model.config.noise_learning == "em":
        latent = {
            name: _second_moment(covariance.scale(eps), log_weights)
            for (name, covariance), eps in zip(model.latent_covariances().items(), noise, strict=True)
        }
    return SecondMoments(_second_moment(residuals, log_weights), latent)


def em_step(model: "SMCTransformer", moments: SecondMoments, step_size: float) -> None:
    """Move the covariances that EM learns a step towards the moments of a batch."""
    model.observation.covariance.update_(moments.observation, step_size)
    covariances = model.latent_covariances()
    for name, moment in moments.latent.items():
        covariances[name].update_(moment, step_size)


def _second_moment(
    residuals: Float[Tensor, "batch line time feature"], log_weights: Float[Tensor, "batch line"]
) -> Float[Tensor, "feature feature"]:
    batch, _, n_steps, n_features = residuals.shape
    weighted = residuals * log_weights.exp()[:, :, None, None]
    return weighted.reshape(-1, n_features).T @ residuals.reshape(-1, n_features) / (batch * n_steps)
