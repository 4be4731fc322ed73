"""The true distribution of the synthetic series, scored like any other method: the best possible forecast."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.nn.observation import GaussianMixture
from smc_transformer.support.randomness import as_generator
from smct_paper.baselines.base import Method
from smct_paper.datasets import SYNTHETIC, MixtureAutoregression, Windows


class BayesOptimal(Method):
    """The true conditional distributions of the synthetic series, and paths simulated from them."""

    def __init__(self) -> None:
        self._model: MixtureAutoregression | None = None

    def fit(self, data: Windows, *, seed: int, progress: bool = False) -> dict[str, Any]:
        """Look up which series these are: there is nothing to learn."""
        if data.name not in SYNTHETIC:
            raise ValueError(f"the true distribution is known for {', '.join(SYNTHETIC)} only, got {data.name!r}")
        self._model = SYNTHETIC[data.name]
        return {}

    @property
    def model(self) -> MixtureAutoregression:
        """The true model."""
        if self._model is None:
            raise RuntimeError("BayesOptimal has to be fitted first, which tells it the data set")
        return self._model

    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 1"], generator: Generator | int | None = None
    ) -> GaussianMixture:
        return self.model.predictive(x)

    def paths(
        self,
        history: Float[Tensor, "batch past 1"],
        horizon: int,
        n_samples: int,
        future_inputs: Float[Tensor, "batch horizon 0"] | None = None,
        generator: Generator | int | None = None,
    ) -> Float[Tensor, "batch sample horizon 1"]:
        generator = as_generator(generator)
        noise = torch.randn(len(history), n_samples, horizon, generator=generator)
        return self.model.simulate(history[:, -1], noise, generator).unsqueeze(-1)
