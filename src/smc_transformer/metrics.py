"""Scores of predictive distributions (PROTOCOL's definitions), averaged over sequences, steps and targets."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from smc_transformer.predictive import Mixture


class OneStepScores(NamedTuple):
    """How good one-step predictive distributions are."""

    mse: float
    """Mean squared error of the predictive mean."""
    picp: float
    """Share of the observations inside the central interval."""
    mpiw: float
    """Mean width of that interval."""
    crps: float
    """Continuous ranked probability score of each target."""
    nll: float
    """Negative joint log density, in nats a step."""


def one_step_scores(
    predictive: Mixture, observed: Float[Tensor, "batch time target"], level: float = 0.95
) -> OneStepScores:
    """All scores of one-step predictive distributions at the observed values; NaN is missing, and not scored."""
    seen = ~observed.isnan()
    interval = predictive.interval(level)
    return OneStepScores(
        mse=float((predictive.mean - observed)[seen].square().mean()),
        picp=float(covered(interval, observed)[seen].double().mean()),
        mpiw=float((interval[1] - interval[0])[seen].mean()),
        crps=float(predictive.crps(observed)[seen].mean()),
        nll=float(-predictive.log_prob(observed)[seen.any(dim=-1)].mean()),
    )


def covered(
    interval: tuple[Float[Tensor, "batch time target"], Float[Tensor, "batch time target"]],
    observed: Float[Tensor, "batch time target"],
) -> Bool[Tensor, "batch time target"]:
    """Whether each observation lies in its interval."""
    lower, upper = interval
    return (lower <= observed) & (observed <= upper)


def sample_interval(
    paths: Float[Tensor, "batch sample time target"], level: float = 0.95
) -> tuple[Float[Tensor, "batch time target"], Float[Tensor, "batch time target"]]:
    """The central interval of sampled paths, at each step."""
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=paths.dtype, device=paths.device)
    lower, upper = paths.quantile(tails, dim=1)
    return lower, upper
