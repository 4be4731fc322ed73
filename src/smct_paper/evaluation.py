"""One evaluator for every method: one-step distributions and forecast paths, scored on the same test windows.

unistep     the distributions of X_1, ..., X_L of each window, each given the past.
multistep   paths of X_{H+1}, ..., X_L, given X_0, ..., X_H.

Only the first `n_targets` columns are scored, and only where they were observed. All averages are over windows, steps
and targets, on scaled values. docs/data.md defines the metrics.
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.empirical import Point, Samples
from smc_transformer.scores import central_coverage, covered, energy_score, interval_score, pit_histogram
from smc_transformer.support.checks import check_count
from smc_transformer.support.randomness import derived_generator
from smct_paper.baselines.base import Method, Predictive
from smct_paper.datasets.synthetic import SYNTHETIC

if TYPE_CHECKING:
    from smct_paper.datasets import Windows

LEVEL = 0.95
"""Level of the interval whose coverage, width and score are reported."""

COVERAGE_LEVELS = [round(0.05 * number, 2) for number in range(1, 20)]

NUMBERS_AT_ONCE = 2**24
"""Size of the predictive samples of the windows that are scored at a time, to bound the memory."""

_UNISTEP, _MULTISTEP = range(2)


@dataclass(frozen=True)
class TaskScores:
    """How good forecasts are at one task.

    Attributes:
        metrics: averages; None where the metric is not defined for the method (the interval of a point forecast, the
            density of samples) or for the task.
        per_step: the same averages for each step: mse, picp, mpiw, crps.
        pit: counts of the probability integral transform in 20 equal bins; None for point forecasts.
        coverage: "levels" of central intervals and the "shares" of observations inside; None likewise.
        n_windows: number of windows scored.
    """

    metrics: dict[str, float | None]
    per_step: dict[str, list[float]]
    pit: list[int] | None
    coverage: dict[str, list[float]] | None
    n_windows: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def evaluate(
    method: Method, data: "Windows", *, n_windows: int | None = 500, n_samples: int = 1000, seed: int = 0
) -> dict[str, TaskScores]:
    """Score a fitted method on test windows.

    Args:
        method: what is scored.
        data: the windows.
        n_windows: how many test windows, evenly spaced and the same for every method; None: all.
        n_samples: paths for each window.
        seed: of all draws.

    Returns:
        Scores of the tasks "unistep" and "multistep".
    """
    n_samples = check_count(n_samples, "n_samples")
    test = data.test[evenly_spaced(len(data.test), n_windows)]
    with torch.no_grad():
        return {
            "unistep": _unistep(method, data, test, n_samples, seed),
            "multistep": _multistep(method, data, test, n_samples, seed),
        }


def evenly_spaced(n: int, n_chosen: int | None) -> Int[Tensor, "chosen"]:
    """Indices from 0 to n - 1, first and last among them; all if more are asked for."""
    if n_chosen is None or check_count(n_chosen, "n_windows") >= n:
        return torch.arange(n)
    return torch.from_numpy(np.linspace(0, n - 1, n_chosen).round().astype(np.int64))


def _unistep(method: Method, data: "Windows", test: Tensor, n_samples: int, seed: int) -> TaskScores:
    generator = derived_generator(seed, _UNISTEP)
    scores = _Scores()
    at_once = max(1, NUMBERS_AT_ONCE // (n_samples * data.length * data.n_modelled))
    for x in test.split(at_once):
        predictive = method.one_step(x, generator)
        # Modelled columns that are no targets are not scored: as if they were missing.
        observed = x[:, 1:, : data.n_modelled].clone()
        observed[..., data.n_targets :] = float("nan")
        scores.add_distributions(predictive, observed)
        scores.add_density(predictive, observed)
        if data.name in SYNTHETIC and not method.is_point:
            samples = predictive.sample(n_samples, generator)
            scores.add("dist_mse", torch.full((len(x),), SYNTHETIC[data.name].distribution_mse(samples, x)))
    return scores.summary()


def _multistep(method: Method, data: "Windows", test: Tensor, n_samples: int, seed: int) -> TaskScores:
    generator = derived_generator(seed, _MULTISTEP)
    scores = _Scores()
    at_once = max(1, NUMBERS_AT_ONCE // (n_samples * data.horizon * data.n_modelled))
    for x in test.split(at_once):
        history, future = x[:, : data.history + 1], x[:, data.history + 1 :]
        known = future[..., data.n_modelled :] if data.n_modelled < data.n_inputs else None
        paths = method.paths(history, data.horizon, n_samples, known, generator)
        expected = (len(x), n_samples, data.horizon, data.n_modelled)
        if tuple(paths.shape) != expected:
            raise ValueError(
                f"paths must have shape (batch, sample, horizon, n_modelled) = {expected}, got {tuple(paths.shape)}"
            )
        paths, observed = paths[..., : data.n_targets], future[..., : data.n_targets]
        predictive: Predictive = Point(paths[:, 0]) if method.is_point else Samples(paths)
        scores.add_distributions(predictive, observed)
        # All paths of a point forecast are the same, so one of them suffices.
        scores.add("energy_score", energy_score(paths[:, :1] if method.is_point else paths, observed))
    return scores.summary()


class _Scores:
    """Scores of every window, step and target, NaN where nothing was observed; collected chunk by chunk."""

    def __init__(self) -> None:
        self.parts: dict[str, list[Tensor]] = {}

    def add(self, name: str, values: Tensor) -> None:
        self.parts.setdefault(name, []).append(values.double())

    def add_distributions(self, predictive: Predictive, observed: Float[Tensor, "batch time target"]) -> None:
        """Scores of each target alone."""
        unseen = observed.isnan()

        def where_seen(values: Tensor) -> Tensor:
            return values.to(observed).masked_fill(unseen, float("nan"))

        self.add("mse", where_seen((predictive.mean - observed).square()))
        self.add("crps", where_seen(predictive.crps(observed)))
        interval, probability = predictive.interval(LEVEL), predictive.cdf(observed)
        if interval is not None:
            self.add("picp", where_seen(covered(interval, observed)))
            self.add("mpiw", where_seen(interval[1] - interval[0]))
            self.add("winkler", where_seen(interval_score(interval, observed, LEVEL)))
        if probability is not None:
            self.add("pit", where_seen(probability))

    def add_density(self, predictive: Predictive, observed: Float[Tensor, "batch time target"]) -> None:
        """Negative joint log density of the targets of each step that has any."""
        log_prob = predictive.log_prob(observed)
        if log_prob is not None:
            self.add("nll", -log_prob.masked_fill(observed.isnan().all(dim=-1), float("nan")))

    def summary(self) -> TaskScores:
        scores = {name: torch.cat(parts) for name, parts in self.parts.items()}
        pit = scores.pop("pit", None)
        names = ("mse", "picp", "mpiw", "crps", "winkler", "nll", "energy_score", "dist_mse")
        seen = None if pit is None else pit[~pit.isnan()]
        return TaskScores(
            metrics={name: float(scores[name].nanmean()) if name in scores else None for name in names},
            per_step={
                name: scores[name].nanmean(dim=(0, 2)).tolist()
                for name in ("mse", "picp", "mpiw", "crps")
                if name in scores
            },
            pit=None if seen is None else pit_histogram(seen),
            coverage=None
            if seen is None
            else {"levels": COVERAGE_LEVELS, "shares": central_coverage(seen, COVERAGE_LEVELS)},
            n_windows=len(scores["mse"]),
        )
