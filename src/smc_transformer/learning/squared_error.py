"""The squared error of the transformer without its noise: where training may start.

With all latent noise at zero the model is an ordinary transformer, trained in a fraction of the time of a particle
filter. The likelihood of many targets is dominated by those that are nearly functions of one another; the squared error
counts all of them, so the features it finds are a better place to begin (docs/learning.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.chunks import in_chunks
from smc_transformer.inference.filter import particle_filter
from smc_transformer.inference.replay import replay, trajectory_inputs
from smc_transformer.learning.goals import BatchReport, Sampling, WeightedGoal
from smc_transformer.learning.ragged import groups_by_start
from smc_transformer.learning.step import sequences_at_once
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.attention import Noise


@dataclass(frozen=True)
class SquaredError(WeightedGoal):
    """The squared error of the mean of X_t, given the past and no noise, averaged over steps and targets.

    Missing values are first drawn from the model, by a filter with one particle: whatever comes later has no part in
    them. Nothing is learned of covariances, scales and the like.
    """

    weights: tuple[float, ...] | None = None  # what an error of one is in each target

    label = "mse"

    def accumulate(
        self, model: SMCTransformer, x: Float[Tensor, "batch time_plus_1 n_inputs"], sampling: Sampling
    ) -> BatchReport:
        total, n_terms = 0.0, self._count(model, x)
        for loss in self._losses(model, x, sampling.generator):
            (loss / n_terms).backward()
            total += float(loss.detach())
        return BatchReport(total, n_terms, None)

    @torch.no_grad()
    def validate(
        self, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"], sampling: Sampling
    ) -> float:
        return sum(map(float, self._losses(model, x, sampling.generator))) / self._count(model, x)

    def n_validated(self, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"]) -> int:
        return self._count(model, x)

    def _losses(self, model: SMCTransformer, x: Tensor, generator: Generator | None) -> Iterator[Tensor]:
        """The loss of one chunk of sequences after the other."""
        for group in groups_by_start(x):
            at_once = sequences_at_once(model, 1, group.x.shape[1] - 1)
            yield from in_chunks(partial(self._loss, model, generator=generator), at_once, group.x)

    def _loss(
        self, model: SMCTransformer, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | None
    ) -> Float[Tensor, ""]:
        """The sum of the squared errors of what was observed."""
        completed = None
        if x.isnan().any():
            completed = particle_filter(model, x, model.settings(1), generator, on_collapse="uniform").completed
        silence = x.new_zeros(len(x), 1, x.shape[1] - 1, model.config.d_model)
        trajectories = replay(model, trajectory_inputs(model, x, completed), Noise(silence, silence, silence, silence))
        observed = self._scored(model, x[:, 1:])
        mean = model.observation.components(trajectories.parameters).mean[:, 0, :, : observed.shape[-1]]
        # An error of zero instead of NaN where nothing was observed: NaN would come back through the gradient.
        return self._weighted(torch.where(observed.isnan(), mean.detach(), observed) - mean).square().sum()

    def _count(self, model: SMCTransformer, x: Float[Tensor, "batch time_plus_1 n_inputs"]) -> int:
        scored = self._scored(model, x)
        return max(1, int((~scored.isnan()).sum()) - scored[:, 0].numel())  # X_0 is complete, and no term
