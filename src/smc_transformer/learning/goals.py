"""What training minimises: the negative log-likelihood, or a score of free-running forecasts.

The likelihood judges one step at a time, given the true past. A forecast of many steps reads its own draws, and where
targets are nearly functions of one another the likelihood is dominated by directions in which they hardly vary.
`ForecastScore` judges paths drawn after a history, by the continuous ranked probability score (docs/learning.md).
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.chunks import in_chunks
from smc_transformer.inference.filter import filter_alone
from smc_transformer.inference.paths import rollout, rollout_numbers, sample_paths
from smc_transformer.learning.em import Statistics, merge_statistics
from smc_transformer.learning.ragged import check_ragged, groups_by_start, split_horizon
from smc_transformer.learning.step import NUMBERS_AT_ONCE, accumulate_gradients
from smc_transformer.model import SMCTransformer
from smc_transformer.scores import fair_crps
from smc_transformer.support.checks import check_count, check_number
from smc_transformer.support.chunks import chunk_size
from smc_transformer.support.randomness import as_generator


class Sampling(NamedTuple):
    """How a goal samples: with so many particles and, for gradients, trajectories (None: one for each particle)."""

    n_particles: int
    n_trajectories: int | None = None
    generator: Generator | None = None


class BatchReport(NamedTuple):
    """What a batch came to: its loss, summed, over how many terms, and what EM needs of it."""

    loss: float
    n_terms: int
    statistics: Statistics | None
    n_steps: int = 1  # that the statistics are averages over: what they count for beside those of another batch


class Goal(ABC):
    """A loss that a trainer makes small; sequences may begin at different rows (`learning/ragged.py`)."""

    label: str  # short, for progress bars

    @abstractmethod
    def accumulate(
        self, model: SMCTransformer, x: Float[Tensor, "batch time_plus_1 n_inputs"], sampling: Sampling
    ) -> BatchReport:
        """Add the gradient of the batch's mean loss to those of the parameters."""

    @abstractmethod
    def validate(
        self, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"], sampling: Sampling
    ) -> float:
        """The mean loss of held-out sequences."""

    def n_validated(self, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"]) -> int:
        """Over how many terms `validate` takes the mean: what it counts for beside that of other sequences."""
        return len(x)

    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed, as JSON gives it back."""
        values: dict[str, Any] = asdict(self) if is_dataclass(self) else {}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"goal": type(self).__name__, **plain}


class WeightedGoal(Goal):
    """A goal in which the first targets count, as many as there are weights, each by its weight."""

    weights: tuple[float, ...] | None  # None: all targets, all the same

    def _scored(
        self, model: SMCTransformer, x: Float[Tensor, "batch time n_inputs"]
    ) -> Float[Tensor, "batch time scored"]:
        n_targets = model.config.n_targets
        if self.weights is not None and len(self.weights) > n_targets:
            raise ValueError(f"there are {len(self.weights)} weights for {n_targets} targets")
        return x[..., : n_targets if self.weights is None else len(self.weights)]

    def _weighted(self, losses: Float[Tensor, "batch time scored"]) -> Float[Tensor, "batch time scored"]:
        return losses if self.weights is None else losses * losses.new_tensor(self.weights)


class Likelihood(Goal):
    """The negative log-likelihood, in nats a step: the score by Fisher's identity, EM for the covariances."""

    label = "nll"

    def accumulate(
        self, model: SMCTransformer, x: Float[Tensor, "batch time_plus_1 n_inputs"], sampling: Sampling
    ) -> BatchReport:
        n_terms = count_observations(model, x)
        found = accumulate_gradients(model, x, n_terms, **sampling._asdict())
        return BatchReport(-float(found.log_likelihood.sum()), n_terms, found.statistics, found.n_steps)

    def validate(
        self, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"], sampling: Sampling
    ) -> float:
        return negative_log_likelihood(model, x, n_particles=sampling.n_particles, generator=sampling.generator)

    def n_validated(self, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"]) -> int:
        return count_observations(model, x)


@dataclass(frozen=True)
class ForecastScore(WeightedGoal):
    """The continuous ranked probability score of sampled paths, averaged over steps and targets.

    Some batches have a shorter history, so that short pasts are learned too. EM learns nothing of covariances here,
    which are those of one step; only the range of the scales is followed. The horizon is counted from the end:
    sequences that begin late have less history.
    """

    history: int  # the last row of the windows that is known; what follows is the horizon
    weights: tuple[float, ...] | None = None  # the units in which forecasts will be scored, if the model has others
    short_share: float = 0.5  # of the batches, whose history is cut to a random shorter one
    n_paths: int = 16  # for each sequence in training
    validation_paths: int = 64  # for each sequence in validation

    label = "crps"

    def __post_init__(self) -> None:
        check_count(self.history, "history", at_least=0)
        check_count(self.n_paths, "n_paths", at_least=2)
        check_count(self.validation_paths, "validation_paths", at_least=2)
        check_number(self.short_share, "short_share", at_most=1.0)

    def accumulate(
        self, model: SMCTransformer, x: Float[Tensor, "batch time_plus_1 n_inputs"], sampling: Sampling
    ) -> BatchReport:
        horizon, generator, groups = self._horizon(x), sampling.generator, groups_by_start(x)
        parts = [split_horizon(self._cut(group.x, horizon, generator), horizon) for group in groups]
        truths = [self._scored(model, future) for _, future in parts]
        n_terms = max(1, sum(int((~truth.isnan()).sum()) for truth in truths))
        n_ahead = sum(len(truth) * truth.shape[1] for truth in truths)
        settings = model.settings(sampling.n_particles)
        forecast = partial(rollout, model, settings, n_paths=self.n_paths, generator=generator)
        total = 0.0
        statistics: list[tuple[Statistics, float]] = []
        for group, (past, future), truth in zip(groups, parts, truths, strict=True):
            held = rollout_numbers(model, self.n_paths, past, future.shape[1])
            at_once = chunk_size(64 * NUMBERS_AT_ONCE, held)
            forecasts = in_chunks(forecast, at_once, past, future[..., model.config.n_targets :])
            with group.places_of_batch():
                for (paths, parameters), observed in zip(forecasts, truth.split(at_once), strict=True):
                    loss = self._weighted(fair_crps(paths[..., : truth.shape[-1]], observed)).nansum()
                    (loss / n_terms).backward()
                    total += float(loss.detach())
                    seen = Statistics(model.observation.forecast_statistics(parameters.detach()), {})
                    statistics.append((seen, len(observed) * truth.shape[1] / n_ahead))
        return BatchReport(total, n_terms, merge_statistics(model, statistics), n_ahead)

    def validate(
        self, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"], sampling: Sampling
    ) -> float:
        horizon, settings = self._horizon(x), model.settings(sampling.n_particles)
        generator, n_samples = sampling.generator, self.validation_paths
        scores = torch.full_like(self._scored(model, x[:, -horizon:]), torch.nan)
        for group in groups_by_start(x):
            past, future = split_horizon(group.x, horizon)
            known, truth = future[..., model.config.n_targets :], self._scored(model, future)
            with group.places_of_batch():
                paths = sample_paths(model, settings, past, known, n_samples=n_samples, generator=generator)
            score = self._weighted(fair_crps(paths[..., : truth.shape[-1]], truth))
            scores[group.sequences, -future.shape[1] :] = score
        return float(scores.nanmean())

    def n_validated(self, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"]) -> int:
        horizon = self._horizon(x)
        futures = [split_horizon(group.x, horizon)[1] for group in groups_by_start(x)]
        return sum(int((~self._scored(model, future).isnan()).sum()) for future in futures)

    def _cut(
        self, x: Float[Tensor, "group time_plus_1 n_inputs"], horizon: int, generator: Generator | None
    ) -> Float[Tensor, "group cut n_inputs"]:
        """Sequences that begin at the same row, or their beginning, with a random shorter history."""
        n_past = max(1, x.shape[1] - horizon)
        if torch.rand((), generator=generator).item() < self.short_share:
            x = x[:, : int(torch.randint(n_past, (), generator=generator)) + 1 + horizon]
        return x

    def _horizon(self, x: Float[Tensor, "batch time_plus_1 n_inputs"]) -> int:
        horizon = x.shape[1] - 1 - self.history
        if horizon < 1:
            raise ValueError(
                f"sequences of {x.shape[1]} values leave nothing to forecast after a history of {self.history + 1}"
            )
        return horizon


@torch.no_grad()
def negative_log_likelihood(
    model: SMCTransformer,
    x: Float[Tensor, "sequence time_plus_1 n_inputs"],
    *,
    n_particles: int | None = None,
    batch_size: int = 64,
    generator: Generator | int | None = None,
) -> float:
    """Mean of -log p(X_t | X_{<t}) over all sequences and all steps with an observation, in nats a step.

    The logarithm of an average over particles is too low by about its relative variance / 2, so this is an upper
    bound on average, and tight for many particles.
    """
    x = check_ragged(model, x, min_time=2)
    batch_size, settings = check_count(batch_size, "batch_size"), model.settings(n_particles)
    generator = as_generator(generator, x.device)
    total = 0.0
    for group in groups_by_start(x):
        with group.places_of_batch():
            results = in_chunks(lambda chunk: filter_alone(model, chunk, settings, generator), batch_size, group.x)
            total += sum(float(result.log_likelihood.sum()) for result in results)
    return -total / count_observations(model, x)


def count_observations(model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"]) -> int:
    """How many steps have at least one observed target (at least 1, for dividing by it); X_0 is no step."""
    observed = (~x[..., : model.config.n_targets].isnan()).any(dim=-1)
    return max(1, int(observed.sum()) - len(x))
