"""What training makes small: the negative log-likelihood, or a score of free-running forecasts.

The likelihood judges one step at a time, given the true past. A forecast of many steps reads its own draws, and where
targets are nearly functions of one another a likelihood cares for little but those thin directions. `ForecastScore`
judges what forecasters use: paths drawn after a history, by the continuous ranked probability score (docs/learning.md).
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.chunks import chunk_size, in_chunks
from smc_transformer.inference.paths import rollout, sample_paths
from smc_transformer.learning.em import Statistics, merge_statistics
from smc_transformer.learning.likelihood import count_observations, negative_log_likelihood
from smc_transformer.learning.step import NUMBERS_AT_ONCE, accumulate_gradients
from smc_transformer.scores import fair_crps
from smc_transformer.support.checks import check_count, check_number

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class BatchReport(NamedTuple):
    """What a batch came to: its loss, summed, over how many terms, and what EM needs of it."""

    loss: float
    n_terms: int
    statistics: Statistics | None


class Goal(ABC):
    """A loss that a trainer makes small.

    Attributes:
        label: its short name, for progress bars.
    """

    label: str

    @abstractmethod
    def accumulate(
        self,
        model: "SMCTransformer",
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        *,
        n_particles: int,
        n_trajectories: int | None,
        generator: Generator | None,
    ) -> BatchReport:
        """Add the gradient of the batch's mean loss to those of the parameters."""

    @abstractmethod
    def validate(
        self,
        model: "SMCTransformer",
        x: Float[Tensor, "sequence time_plus_1 n_inputs"],
        *,
        n_particles: int,
        generator: Generator | None,
    ) -> float:
        """The mean loss of held-out sequences."""

    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed."""
        return {"goal": type(self).__name__}


class Likelihood(Goal):
    """The negative log-likelihood, in nats a step: the score by Fisher's identity, EM for the covariances."""

    label = "nll"

    def accumulate(
        self,
        model: "SMCTransformer",
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        *,
        n_particles: int,
        n_trajectories: int | None,
        generator: Generator | None,
    ) -> BatchReport:
        n_terms = count_observations(model, x)
        statistics, log_likelihood = accumulate_gradients(
            model, x, n_terms, n_particles=n_particles, n_trajectories=n_trajectories, generator=generator
        )
        return BatchReport(-float(log_likelihood.sum()), n_terms, statistics)

    def validate(
        self,
        model: "SMCTransformer",
        x: Float[Tensor, "sequence time_plus_1 n_inputs"],
        *,
        n_particles: int,
        generator: Generator | None,
    ) -> float:
        return negative_log_likelihood(model, x, n_particles=n_particles, generator=generator)


@dataclass(frozen=True)
class ForecastScore(Goal):
    """The continuous ranked probability score of sampled paths, averaged over steps and targets.

    Some batches have a shorter history, so that short pasts are learned too. EM learns nothing of covariances here,
    which are those of one step; only the range of the scales is followed.

    Attributes:
        history: the last index H of the known values X_0, ..., X_H; what follows is the horizon.
        weights: how much each target counts, the first ones; None: all of them the same. In the units in which
            forecasts will be scored, if the model has others.
        short_share: share of the batches whose history is cut to a random shorter one.
        n_paths: paths for each sequence in training.
        validation_paths: paths for each sequence in validation.
    """

    history: int
    weights: tuple[float, ...] | None = None
    short_share: float = 0.5
    n_paths: int = 16
    validation_paths: int = 64

    label = "crps"

    def __post_init__(self) -> None:
        check_count(self.history, "history", at_least=0)
        check_count(self.n_paths, "n_paths", at_least=2)
        check_count(self.validation_paths, "validation_paths", at_least=2)
        check_number(self.short_share, "short_share", at_most=1.0)

    def accumulate(
        self,
        model: "SMCTransformer",
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        *,
        n_particles: int,
        n_trajectories: int | None,
        generator: Generator | None,
    ) -> BatchReport:
        del n_trajectories
        horizon = self._horizon(x)
        x = x[:, : self._draw_history(generator) + 1 + horizon]
        truth = self._truth(model, x, horizon)
        n_terms = max(1, int((~truth.isnan()).sum()))
        # A path keeps, for the gradient, the keys and values that each of its steps attended to.
        held = 4 * self.n_paths * horizon * x.shape[1] * model.config.d_model
        at_once = chunk_size(64 * NUMBERS_AT_ONCE, held)
        past, known = x[:, :-horizon], x[:, -horizon:, model.config.n_targets :]
        forecast = partial(rollout, model, model.settings(n_particles), n_paths=self.n_paths, generator=generator)
        forecasts = in_chunks(forecast, at_once, past, known)
        total = 0.0
        statistics: list[tuple[Statistics, float]] = []
        for (paths, parameters), observed in zip(forecasts, truth.split(at_once), strict=True):
            loss = self._weighted(fair_crps(paths[..., : truth.shape[-1]], observed)).nansum()
            (loss / n_terms).backward()
            total += float(loss.detach())
            seen = Statistics(model.observation.forecast_statistics(parameters.detach()), {})
            statistics.append((seen, len(observed) / len(x)))
        return BatchReport(total, n_terms, merge_statistics(model, statistics))

    def validate(
        self,
        model: "SMCTransformer",
        x: Float[Tensor, "sequence time_plus_1 n_inputs"],
        *,
        n_particles: int,
        generator: Generator | None,
    ) -> float:
        horizon = self._horizon(x)
        paths = sample_paths(
            model,
            model.settings(n_particles),
            x[:, :-horizon],
            x[:, -horizon:, model.config.n_targets :],
            n_samples=self.validation_paths,
            generator=generator,
        )
        truth = self._truth(model, x, horizon)
        return float(self._weighted(fair_crps(paths[..., : truth.shape[-1]], truth)).nanmean())

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **asdict(self), "weights": None if self.weights is None else list(self.weights)}

    def _horizon(self, x: Float[Tensor, "batch time_plus_1 n_inputs"]) -> int:
        horizon = x.shape[1] - 1 - self.history
        if horizon < 1:
            raise ValueError(
                f"sequences of {x.shape[1]} values leave nothing to forecast after a history of {self.history + 1}"
            )
        return horizon

    def _draw_history(self, generator: Generator | None) -> int:
        shorter = torch.rand((), generator=generator).item() < self.short_share
        return int(torch.randint(self.history + 1, (), generator=generator)) if shorter else self.history

    def _truth(self, model: "SMCTransformer", x: Tensor, horizon: int) -> Float[Tensor, "batch horizon scored"]:
        return x[:, -horizon:, : count_scored(model, self.weights)]

    def _weighted(self, scores: Float[Tensor, "batch horizon scored"]) -> Float[Tensor, "batch horizon scored"]:
        return scores if self.weights is None else scores * scores.new_tensor(self.weights)


def count_scored(model: "SMCTransformer", weights: tuple[float, ...] | None) -> int:
    """How many targets have a part in a score, the first ones: as many as it has weights, without weights all."""
    n_targets = model.config.n_targets
    if weights is not None and len(weights) > n_targets:
        raise ValueError(f"there are {len(weights)} weights for {n_targets} targets")
    return n_targets if weights is None else len(weights)
