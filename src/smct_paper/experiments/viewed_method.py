"""The SMC Transformer on windows that are seen through the local view: the network models x, scores are of y.

Training windows are seen twice, as a series that is followed (every row from the one before it) and as a forecast
(the horizon from the last known row): the same network answers both tasks. Nothing here looks at test windows.
"""

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.empirical import Samples
from smc_transformer.inference.filter import particle_filter
from smc_transformer.learning import evenly_spaced
from smc_transformer.model import SMCTransformer
from smc_transformer.predictive import Mixture
from smc_transformer.support.randomness import as_generator
from smct_paper.experiments import window_view
from smct_paper.experiments.smc_method import FEW_MISSING, SMCMethod, between_particles
from smct_paper.experiments.window_view import Seen, WindowView

if TYPE_CHECKING:
    from smct_paper.datasets import Windows


class ViewedMethod(SMCMethod):
    """The SMC Transformer with given settings, on values that are relative to simple forecasts of them."""

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "view": window_view.constants()}

    def fit(self, data: "Windows", *, seed: int, progress: bool = False) -> dict[str, Any]:
        self.n_modelled = data.n_modelled
        self.view = WindowView.fit(data.train, data.validation, data.history)
        complete = ~data.train.isnan().any(dim=-1).any(dim=-1)
        few_missing = (~complete).double().mean() <= FEW_MISSING
        train = self._both_views(data.train[complete] if few_missing else data.train, data.history)
        chosen = evenly_spaced(len(data.validation), self.chosen.validation_windows)
        validation = self._both_views(data.validation[chosen], data.history)
        shape = {"n_inputs": train.shape[-1], "n_targets": data.n_modelled}
        self.model = SMCTransformer.from_settings({**shape, **self.chosen.model}, generator=seed)
        units = (1.0,) * data.n_targets
        losses = self.chosen.train(
            self.model, train, validation, history=data.history, units=units, seed=seed, progress=progress
        )
        return {
            "training_windows": len(train) // 2,
            **losses,
            "between_particles": between_particles(self.model, validation[: len(chosen)], data.n_targets, seed),
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
        }

    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | int | None = None
    ) -> "ViewedMixture":
        generator = as_generator(generator)
        settings = self.model.settings(self.chosen.test_particles)
        mixture = particle_filter(self.model, self._rows(x), settings, generator).predictive
        return ViewedMixture(mixture, self.view, self.view.look(x, 0), generator)

    def paths(
        self,
        history: Float[Tensor, "batch past n_inputs"],
        horizon: int,
        n_samples: int,
        future_inputs: Float[Tensor, "batch horizon known"] | None = None,
        generator: Generator | int | None = None,
    ) -> Float[Tensor, "batch sample horizon n_modelled"]:
        future = history.new_full((len(history), horizon, history.shape[-1]), torch.nan)
        if future_inputs is not None:
            future[..., self.n_modelled :] = future_inputs
        cutoff = history.shape[1] - 1
        rows = self._rows(torch.cat((history, future), dim=1), cutoff)
        known = rows[:, cutoff + 1 :, self.n_modelled :]
        paths = self.model.forecast(
            rows[:, : cutoff + 1], horizon, n_samples, known, generator, n_particles=self.chosen.particles
        )
        return self.view.paths_back(paths, self.view.look(history, horizon))

    def _rows(self, x: Float[Tensor, "batch time_plus_1 n_inputs"], cutoff: int | None = None) -> Tensor:
        """The network's rows; an input that is missing but not modelled is what the view expects."""
        rows = self.view.rows(x, cutoff)
        rows[..., self.n_modelled :] = rows[..., self.n_modelled :].nan_to_num(0.0)
        return rows

    def _both_views(self, x: Float[Tensor, "window time_plus_1 n_inputs"], history: int) -> Tensor:
        """Windows as they are followed, then as they are forecast."""
        return torch.cat((self._rows(x), self._rows(x, history)))


class ViewedMixture(Samples):
    """A mixture of x in the units of y: quantiles, cdf and CRPS from draws, and the exact density."""

    def __init__(
        self, mixture: Mixture, view: WindowView, seen: Seen, generator: Generator | None = None, n_draws: int = 1000
    ):
        self.mixture, self.view = mixture, view
        draws = mixture.sample(n_draws, generator)
        self.anchor, self.unit = seen.anchor[..., : draws.shape[-1]], seen.unit[..., : draws.shape[-1]]
        super().__init__(self.anchor.unsqueeze(1) + self.unit.unsqueeze(1) * view.from_normal(draws))

    def log_prob(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time"]:
        """Joint log density; NaN is integrated out."""
        errors = (x - self.anchor) / self.unit
        jacobian = torch.where(x.isnan(), 0.0, self.view.log_slope(errors) - self.unit.log()).sum(dim=-1)
        return self.mixture.log_prob(self.view.to_normal(errors)) + jacobian
