"""Scores of predictive distributions against observed values.

A missing observation is NaN, and so is its score: averages leave both out.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from smc_transformer.predictive import Interval, Mixture, Predictive

COVERAGE_LEVELS = [round(0.05 * number, 2) for number in range(1, 20)]
"""Of the central intervals whose coverage is reported beside the histogram of probability integral transforms."""


class OneStepScores(NamedTuple):
    """How good one-step predictive distributions are."""

    mse: float  # mean squared error of the predictive mean
    picp: float  # share of the observations inside the central interval
    mpiw: float  # mean width of that interval
    crps: float  # continuous ranked probability score of each target
    nll: float  # negative joint log density, in nats a step


def one_step_scores(
    predictive: Mixture, observed: Float[Tensor, "batch time target"], level: float = 0.95
) -> OneStepScores:
    """All scores of one-step predictive distributions at the observed values; NaN is missing, and not scored."""
    seen = ~observed.isnan()
    found = {name: values[seen] for name, values in target_scores(predictive, observed, level).items()}
    return OneStepScores(
        **{name: float(found[name].mean()) for name in ("mse", "mpiw", "crps")},
        picp=float(found["picp"].double().mean()),
        nll=float(-predictive.log_prob(observed)[seen.any(dim=-1)].mean()),
    )


def target_scores(
    predictive: Predictive, observed: Float[Tensor, "batch time target"], level: float = 0.95
) -> dict[str, Float[Tensor, "batch time target"]]:
    """The scores of each target alone, NaN where nothing was observed: the squared error mse, and crps.

    Distributions that claim uncertainty also have pit, which is P(X <= x), and the scores of their central interval.
    """
    found = {"mse": (predictive.mean - observed).square(), "crps": predictive.crps(observed)}
    interval, probability = predictive.interval(level), predictive.cdf(observed)
    if probability is not None:
        found["pit"] = probability
    if interval is not None:
        found |= interval_scores(interval, observed, level)
    return {name: where_observed(values, observed) for name, values in found.items()}


def interval_scores(
    interval: Interval, observed: Float[Tensor, "batch time target"], level: float = 0.95
) -> dict[str, Float[Tensor, "batch time target"]]:
    """Of each interval: whether it covers the observation (picp), its width (mpiw) and its score (winkler)."""
    return {
        "picp": covered(interval, observed).to(observed),
        "mpiw": interval[1] - interval[0],
        "winkler": interval_score(interval, observed, level),
    }


def where_observed(
    values: Float[Tensor, "batch time target"] | Bool[Tensor, "batch time target"],
    observed: Float[Tensor, "batch time target"],
) -> Float[Tensor, "batch time target"]:
    """The values, of the type of the observations, and NaN where nothing was observed."""
    return values.to(observed).masked_fill(observed.isnan(), float("nan"))


def joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The scores of several batches of forecasts as those of one, in double precision, ready to be averaged."""
    return {name: torch.cat([part[name].double() for part in parts]) for name in parts[0]}


def covered(interval: Interval, observed: Float[Tensor, "batch time target"]) -> Bool[Tensor, "batch time target"]:
    """Whether each observation lies in its interval."""
    lower, upper = interval
    return (lower <= observed) & (observed <= upper)


def sample_interval(paths: Float[Tensor, "batch sample time target"], level: float = 0.95) -> Interval:
    """The central interval of sampled paths, at each step."""
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=paths.dtype, device=paths.device)
    lower, upper = paths.quantile(tails, dim=1)
    return lower, upper


def interval_score(
    interval: Interval, observed: Float[Tensor, "batch time target"], level: float = 0.95
) -> Float[Tensor, "batch time target"]:
    """The interval (Winkler) score: width, plus 2 / (1 - level) times the distance of an observation outside."""
    lower, upper = interval
    outside = (lower - observed).clamp(min=0) + (observed - upper).clamp(min=0)
    return upper - lower + 2 / (1 - level) * outside


def fair_crps(
    samples: Float[Tensor, "batch sample time target"], observed: Float[Tensor, "batch time target"]
) -> Float[Tensor, "batch time target"]:
    """Unbiased estimate of the CRPS from samples, differentiable in them; NaN where nothing was observed.

    E|X - x| - E|X - X'| / 2, the second term over pairs of different samples: from sorted samples in one sum.
    `Samples.crps` is the score of the empirical distribution itself, whose second term is over all pairs.
    """
    n_samples = samples.shape[1]
    ranks = torch.arange(1, n_samples + 1, dtype=samples.dtype, device=samples.device).view(1, -1, 1, 1)
    spread = ((2 * ranks - n_samples - 1) * samples.sort(dim=1).values).sum(dim=1) / (n_samples * (n_samples - 1))
    return (samples - observed.unsqueeze(1)).abs().mean(dim=1) - spread


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


def central_coverage(pit: Float[Tensor, "value"], levels: Sequence[float] = tuple(COVERAGE_LEVELS)) -> list[float]:
    """Share of the observations inside the central interval of each level; equal to it if forecasts are calibrated."""
    return [float(((2 * pit - 1).abs() <= level).double().mean()) for level in levels]
