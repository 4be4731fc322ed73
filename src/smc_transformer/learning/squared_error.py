"""The squared error of the transformer without its noise: where training may start.

With all latent noise at zero the model is an ordinary transformer, trained in a fraction of the time of a particle
filter. A likelihood of many targets cares first for those that are nearly functions of one another; the squared error
cares for all of them, so the features it finds are a better place to begin (docs/learning.md).
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.chunks import in_chunks
from smc_transformer.inference.filter import particle_filter
from smc_transformer.inference.replay import replay, trajectory_inputs
from smc_transformer.learning.goals import BatchReport, Goal, count_scored
from smc_transformer.learning.step import sequences_at_once
from smc_transformer.nn.attention import Noise

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


@dataclass(frozen=True)
class SquaredError(Goal):
    """The squared error of the mean of X_t, given the past and no noise, averaged over steps and targets.

    Missing values are first drawn from the model, by a filter with one particle: whatever comes later has no part in
    them. Nothing is learned of covariances, scales and the like.

    Attributes:
        weights: what an error of one is in each target, the first ones; None: one in all of them.
    """

    weights: tuple[float, ...] | None = None

    label = "mse"

    def accumulate(
        self,
        model: "SMCTransformer",
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        *,
        n_particles: int,
        n_trajectories: int | None,
        generator: Generator | None,
    ) -> BatchReport:
        del n_particles, n_trajectories
        n_terms = self._n_terms(model, x)
        total = 0.0
        for loss in in_chunks(partial(self._loss, model, generator=generator), _at_once(model, x), x):
            (loss / n_terms).backward()
            total += float(loss.detach())
        return BatchReport(total, n_terms, None)

    @torch.no_grad()
    def validate(
        self,
        model: "SMCTransformer",
        x: Float[Tensor, "sequence time_plus_1 n_inputs"],
        *,
        n_particles: int,
        generator: Generator | None,
    ) -> float:
        del n_particles
        losses = in_chunks(partial(self._loss, model, generator=generator), _at_once(model, x), x)
        return sum(map(float, losses)) / self._n_terms(model, x)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "weights": None if self.weights is None else list(self.weights)}

    def _loss(
        self, model: "SMCTransformer", x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | None
    ) -> Float[Tensor, ""]:
        """The sum of the squared errors of what was observed."""
        completed = None
        if x.isnan().any():
            completed = particle_filter(model, x, model.settings(1), generator, on_collapse="uniform").completed
        silence = x.new_zeros(len(x), 1, x.shape[1] - 1, model.config.d_model)
        trajectories = replay(model, trajectory_inputs(model, x, completed), Noise(silence, silence, silence, silence))
        observed = self._observed(model, x)
        mean = model.observation.components(trajectories.parameters).mean[:, 0, :, : observed.shape[-1]]
        # An error of zero instead of NaN where nothing was observed: NaN would come back through the gradient.
        error = torch.where(observed.isnan(), mean.detach(), observed) - mean
        return (error if self.weights is None else error * error.new_tensor(self.weights)).square().sum()

    def _observed(
        self, model: "SMCTransformer", x: Float[Tensor, "batch time_plus_1 n_inputs"]
    ) -> Float[Tensor, "batch time scored"]:
        return x[:, 1:, : count_scored(model, self.weights)]

    def _n_terms(self, model: "SMCTransformer", x: Float[Tensor, "batch time_plus_1 n_inputs"]) -> int:
        return max(1, int((~self._observed(model, x).isnan()).sum()))


def _at_once(model: "SMCTransformer", x: Float[Tensor, "batch time_plus_1 n_inputs"]) -> int:
    return sequences_at_once(model, 1, x.shape[1] - 1)
