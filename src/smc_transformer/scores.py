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


def interval_score(
    interval: tuple[Float[Tensor, "batch time target"], Float[Tensor, "batch time target"]],
    observed: Float[Tensor, "batch time target"],
    level: float = 0.95,
) -> Float[Tensor, "batch time target"]:
    """The interval (Winkler) score: width, plus 2 / (1 - level) times the distance of an observation outside."""
    lower, upper = interval
    outside = (lower - observed).clamp(min=0) + (observed - upper).clamp(min=0)
    return upper - lower + 2 / (1 - level) * outside


def energy_score(
    paths: Float[Tensor, "batch sample time target"], observed: Float[Tensor, "batch time target"]
) -> Float[Tensor, "batch"]:
    """The energy score of whole paths, E|X - x| - E|X - X'| / 2 with Euclidean distances over steps and targets.

    Entries that are missing are left out of the distances of their sequence; a sequence without any has NaN. Distances
    come from matrix products, which takes a tenth of the time of a loop over pairs.
    """
    scores = torch.full((len(paths),), float("nan"), dtype=paths.dtype)
    for number, (path, truth) in enumerate(zip(paths.flatten(2), observed.flatten(1), strict=True)):
        seen = ~truth.isnan()
        if not seen.any():
            continue
        # The products lose digits where vectors are long compared with their distance: centred ones are not.
        draws = path[:, seen] - path[:, seen].mean(dim=0)
        error = (path[:, seen] - truth[seen]).norm(dim=-1).mean()
        pairs = torch.cdist(draws, draws, compute_mode="use_mm_for_euclid_dist").fill_diagonal_(0.0)
        scores[number] = error - pairs.mean() / 2
    return scores


def pit_histogram(pit: Float[Tensor, "value"], n_bins: int = 20) -> list[int]:
    """How many probability integral transforms fall into each of the equal parts of [0, 1]."""
    return torch.bincount((pit * n_bins).long().clamp(0, n_bins - 1), minlength=n_bins).tolist()


def central_coverage(pit: Float[Tensor, "value"], levels: list[float]) -> list[float]:
    """Share of the observations inside the central interval of each level; equal to it if forecasts are calibrated."""
    return [float(((2 * pit - 1).abs() <= level).double().mean()) for level in levels]
