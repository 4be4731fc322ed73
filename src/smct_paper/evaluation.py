"""One evaluator for every method: one-step distributions and forecast paths, scored on the same test windows.

unistep     the distributions of X_1, ..., X_L of each window, each given the past.
multistep   paths of X_{H+1}, ..., X_L, given X_0, ..., X_H.

Only the first `n_targets` columns are scored, and only where they were observed. All averages are over windows, steps
and targets, on scaled values. docs/data.md defines the metrics.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.nn import functional as F

from smc_transformer.empirical import Point, Samples
from smc_transformer.inference.chunks import in_chunks
from smc_transformer.learning.recipe import evenly_spaced
from smc_transformer.scores import COVERAGE_LEVELS, central_coverage, energy_score, joined, pit_histogram, target_scores
from smc_transformer.support.checks import check_count
from smc_transformer.support.chunks import chunk_size
from smc_transformer.support.randomness import derived_generator
from smct_paper.baselines.base import Method
from smct_paper.datasets.synthetic import SYNTHETIC
from smct_paper.jumps import right_after_jumps

if TYPE_CHECKING:
    from smct_paper.datasets import Windows

LEVEL = 0.95
"""Level of the interval whose coverage, width and score are reported."""

NUMBERS_AT_ONCE = 2**24
"""Size of the predictive samples of the windows that are scored at a time, to bound the memory."""

PER_STEP = ("mse", "picp", "mpiw", "crps")
METRICS = (*PER_STEP, "winkler", "nll", "energy_score", "dist_mse")
AFTER_JUMPS = ("picp", "mpiw", "crps", "nll")
"""Of these the average over steps right after a jump (`jumps`) is reported too, of one-step distributions."""


@dataclass(frozen=True)
class TaskScores:
    """How good forecasts are at one task."""

    metrics: dict[str, float | None]
    """Averages; None where the metric is not defined for the method (the interval of a point forecast, the density of
    samples) or for the task."""
    per_step: dict[str, list[float]]
    """The same averages for each step, of the metrics `PER_STEP`."""
    pit: list[int] | None
    """Counts of the probability integral transform in 20 equal bins; None for point forecasts."""
    coverage: dict[str, list[float]] | None
    """The "levels" of central intervals and the "shares" of observations inside; None likewise."""
    n_windows: int
    after_jumps: dict[str, float] | None = None
    """Averages over the steps right after a jump alone, of the metrics `AFTER_JUMPS`, and their "share" of all."""


def evaluate(
    method: Method, data: "Windows", *, n_windows: int | None = 500, n_samples: int = 1000, seed: int = 0
) -> dict[str, TaskScores]:
    """Score a fitted method at both tasks, "unistep" and "multistep", with `n_samples` draws of each forecast.

    The `n_windows` test windows are evenly spaced, and the same for every method; None: all of them.
    """
    n_samples = check_count(n_samples, "n_samples")
    test = data.test[evenly_spaced(len(data.test), n_windows)]
    scorers = _Scorers(method, data, n_samples)
    tasks = {"unistep": (scorers.one_step, data.length), "multistep": (scorers.paths, data.horizon)}
    found = {}
    for place, (task, (score, n_steps)) in enumerate(tasks.items()):
        work = partial(score, derived_generator(seed, place))
        at_once = chunk_size(NUMBERS_AT_ONCE, n_samples * n_steps * data.n_modelled)
        with torch.no_grad():
            found[task] = _summary(list(in_chunks(work, at_once, test)))
    return found


class _Scorers(NamedTuple):
    """The scores of each window, step and target."""

    method: Method
    data: "Windows"
    n_samples: int

    def one_step(self, generator: Generator, x: Float[Tensor, "window time_plus_1 n_inputs"]) -> dict[str, Tensor]:
        data, predictive = self.data, self.method.one_step(x, generator)
        # Modelled columns that are no targets are not scored: as if they were missing.
        observed = x[:, 1:, : data.n_modelled].clone()
        observed[..., data.n_targets :] = float("nan")
        scores = target_scores(predictive, observed, LEVEL)
        log_prob = predictive.log_prob(observed)
        if log_prob is not None:  # joint over the targets of each step that has any
            scores["nll"] = -log_prob.masked_fill(observed.isnan().all(dim=-1), float("nan"))
        targets, train = x[..., : data.n_targets], data.train[..., : data.n_targets]
        after = right_after_jumps(targets, train) & ~targets[:, 1:].isnan()
        scores["after_jump"] = F.pad(after, (0, data.n_modelled - data.n_targets)).double()
        if data.name in SYNTHETIC and not self.method.is_point:
            samples = predictive.sample(self.n_samples, generator)
            scores["dist_mse"] = torch.full((len(x),), SYNTHETIC[data.name].distribution_mse(samples, x))
        return scores

    def paths(self, generator: Generator, x: Float[Tensor, "window time_plus_1 n_inputs"]) -> dict[str, Tensor]:
        data, is_point = self.data, self.method.is_point
        history, future = x[:, : data.history + 1], x[:, data.history + 1 :]
        known = future[..., data.n_modelled :] if data.n_modelled < data.n_inputs else None
        paths = self.method.paths(history, data.horizon, self.n_samples, known, generator)
        expected, got = (len(x), self.n_samples, data.horizon, data.n_modelled), tuple(paths.shape)
        if got != expected:
            raise ValueError(f"paths must have shape (batch, sample, horizon, n_modelled) = {expected}, got {got}")
        paths, observed = paths[..., : data.n_targets], future[..., : data.n_targets]
        predictive = Point(paths[:, 0]) if is_point else Samples(paths)
        # All paths of a point forecast are the same: one of them has the same score.
        energy = energy_score(paths[:, :1] if is_point else paths, observed)
        return {**target_scores(predictive, observed, LEVEL), "energy_score": energy}


def _summary(parts: list[dict[str, Tensor]]) -> TaskScores:
    """The averages of the scores of all windows, steps and targets."""
    scores = joined(parts)
    pit, after = scores.pop("pit", None), scores.pop("after_jump", None)
    seen = None if pit is None else pit[~pit.isnan()]
    return TaskScores(
        metrics={name: float(scores[name].nanmean()) if name in scores else None for name in METRICS},
        per_step={name: scores[name].nanmean(dim=(0, 2)).tolist() for name in PER_STEP if name in scores},
        pit=None if seen is None else pit_histogram(seen),
        coverage=None if seen is None else {"levels": COVERAGE_LEVELS, "shares": central_coverage(seen)},
        n_windows=len(scores["mse"]),
        after_jumps=None if after is None else _after_jumps(scores, after.bool()),
    )


def _after_jumps(scores: dict[str, Tensor], after: Bool[Tensor, "window time n_modelled"]) -> dict[str, float] | None:
    """Averages over the steps that are right after a jump; None where none is."""
    if not after.any():
        return None
    found = {"share": float(after[~scores["mse"].isnan()].double().mean())}
    for name in AFTER_JUMPS:
        if name in scores:  # the density is joint over the targets
            found[name] = float(scores[name][after if scores[name].ndim == 3 else after.any(dim=-1)].nanmean())
    return found
