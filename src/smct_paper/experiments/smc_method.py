"""The SMC Transformer as a method of the experiments: trained in stages, widened, and scored like the others.

1. The squared error of the transformer without its noise, which is fast.
2. The likelihood: filter, smoothing trajectories, Fisher's identity, EM (the whole training of the paper's
configuration). 3. The score of free-running forecasts, from where the likelihood has ended. 4. A factor on the noise
for each task, so that validation intervals have the wanted coverage.

Inside, values are in units of a typical one-step change, if the settings say so: the net then predicts numbers of the
order of one, whatever the data set. Nothing here looks at test windows.
"""

import copy
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.empirical import Samples
from smc_transformer.inference.filter import particle_filter
from smc_transformer.learning import ForecastScore, Goal, Likelihood, SquaredError, Stage, train_in_stages
from smc_transformer.learning.calibration import forecast_coverage, one_step_coverage, widen_to_cover
from smc_transformer.model import SMCTransformer, split_settings
from smc_transformer.nn.encoders.changes import ChangesEncoder, typical_size
from smc_transformer.predictive import Mixture
from smc_transformer.support.randomness import as_generator
from smct_paper.baselines.base import Method, Predictive
from smct_paper.evaluation import evenly_spaced

if TYPE_CHECKING:
    from smct_paper.datasets import Windows

FEW_MISSING = 0.1
"""Up to this share of training windows with missing values are left out: the others train several times faster."""


@dataclass(frozen=True)
class SMCSettings:
    """All that defines a configuration of the SMC Transformer in the experiments.

    Attributes:
        model: settings of `SMCTransformerConfig`, without the numbers of inputs and targets.
        squared_error: the first stage; None: the likelihood is the first.
        likelihood: the second.
        forecast: the third; None: the likelihood is the last.
        forecast_paths: paths of each sequence in the third stage.
        widen_to: share of validation observations that 95 % intervals should cover; None: as they are.
        widening_blocks: consecutive blocks of validation windows whose median coverage counts, so that one
            unusual period does not set the width of all intervals.
        widening_windows: validation windows, evenly spaced, by which noise is widened: estimating a
            coverage near 95 % takes more of them than estimating a mean.
        validation_windows: validation windows, evenly spaced, by which epochs are chosen.
        validation_paths: paths of each of them.
        units_of_change: whether values are divided by the deviation of their one-step changes.
        particles: particles that filter the histories of forecasts.
        test_particles: those that filter whole test windows: what likelihoods are estimated by.
    """

    model: dict[str, Any] = field(default_factory=dict)
    squared_error: Stage | None = None
    likelihood: Stage = field(default_factory=lambda: Stage(1000))
    forecast: Stage | None = None
    forecast_paths: int = 8
    widen_to: float | None = None
    widening_blocks: int = 5
    widening_windows: int = 500
    validation_windows: int = 250
    validation_paths: int = 32
    units_of_change: bool = False
    particles: int = 64
    test_particles: int = 256


class SMCMethod(Method):
    """The SMC Transformer with given settings."""

    def __init__(self, settings: SMCSettings):
        self.chosen = settings

    def settings(self) -> dict[str, Any]:
        """All settings, those of the model with their defaults, so that a result knows what made it."""
        parts = split_settings({"n_inputs": 1, "n_targets": 1, **self.chosen.model})
        config = {name: value for part in parts for name, value in part.to_dict().items()}
        of_the_data = ("n_inputs", "n_targets")
        return {
            **asdict(self.chosen),
            "model": {name: value for name, value in config.items() if name not in of_the_data},
        }

    def fit(self, data: "Windows", *, seed: int, progress: bool = False) -> dict[str, Any]:
        chosen = self.chosen
        self.n_modelled = data.n_modelled
        self.units = _typical_changes(data.train) if chosen.units_of_change else data.train.new_ones(data.n_inputs)
        train = _mostly_complete(data.train) / self.units
        held_out = data.validation / self.units
        validation = held_out[evenly_spaced(len(held_out), chosen.validation_windows)]
        shape = {"n_inputs": data.n_inputs, "n_targets": data.n_modelled}
        self.model = SMCTransformer.from_settings({**shape, **chosen.model}, generator=seed)
        if isinstance(self.model.encoder, ChangesEncoder):
            self.model.encoder.set_scales_(train)
        reports = train_in_stages(self.model, self._stages(data), train, validation, seed=seed, progress=progress)
        facts: dict[str, Any] = {
            "training_windows": len(train),
            **{name: [report.validation_loss for report in history] for name, history in reports.items()},
        }
        facts["between_particles"] = _between_particles(self.model, validation, data.n_targets, seed)
        self.one_step_model = copy.deepcopy(self.model)
        if chosen.widen_to is not None:
            n_scored, n_blocks = data.n_targets, chosen.widening_blocks
            judges = held_out[evenly_spaced(len(held_out), chosen.widening_windows)]
            facts["widening"] = {
                "unistep": widen_to_cover(
                    self.one_step_model,
                    lambda model: one_step_coverage(model, judges, n_scored, n_blocks=n_blocks),
                    chosen.widen_to,
                    6,
                ),
                "multistep": widen_to_cover(
                    self.model,
                    lambda model: forecast_coverage(model, judges, data.history, n_scored, n_blocks=n_blocks),
                    chosen.widen_to,
                    6,
                ),
            }
        facts["parameters"] = sum(parameter.numel() for parameter in self.model.parameters())
        return facts

    def _stages(self, data: "Windows") -> dict[str, tuple[Stage, Goal]]:
        """The stages and their goals; each target is scored in the units of the data."""
        chosen = self.chosen
        units = tuple(self.units[: data.n_targets].tolist())
        stages: dict[str, tuple[Stage | None, Goal]] = {
            "squared_error": (chosen.squared_error, SquaredError(units)),
            "likelihood": (chosen.likelihood, Likelihood()),
            "forecast": (
                chosen.forecast,
                ForecastScore(
                    data.history, units, n_paths=chosen.forecast_paths, validation_paths=chosen.validation_paths
                ),
            ),
        }
        return {name: (stage, goal) for name, (stage, goal) in stages.items() if stage is not None}

    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | int | None = None
    ) -> Predictive:
        generator = as_generator(generator)
        settings = self.one_step_model.settings(self.chosen.test_particles)
        mixture = particle_filter(self.one_step_model, x / self.units, settings, generator).predictive
        if not self.chosen.units_of_change:
            return mixture
        return RescaledMixture(mixture, self.units[: self.n_modelled], generator)

    def paths(
        self,
        history: Float[Tensor, "batch past n_inputs"],
        horizon: int,
        n_samples: int,
        future_inputs: Float[Tensor, "batch horizon known"] | None = None,
        generator: Generator | int | None = None,
    ) -> Float[Tensor, "batch sample horizon n_modelled"]:
        known = None if future_inputs is None else future_inputs / self.units[self.n_modelled :]
        paths = self.model.forecast(
            history / self.units, horizon, n_samples, known, generator, n_particles=self.chosen.particles
        )
        return paths * self.units[: self.n_modelled]


class RescaledMixture(Samples):
    """A mixture in other units: quantiles, cdf and CRPS from draws, and the exact density.

    Args:
        mixture: the distribution in the model's units.
        units: what one unit of each target is.
        generator: source of the draws.
        n_draws: number of draws.
    """

    def __init__(
        self,
        mixture: Mixture,
        units: Float[Tensor, "target"],
        generator: Generator | None = None,
        n_draws: int = 1000,
    ):
        super().__init__(mixture.sample(n_draws, generator) * units)
        self.mixture = mixture
        self.units = units

    def log_prob(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time"]:  # type: ignore[override]
        """Joint log density; NaN is integrated out."""
        jacobian = torch.where(x.isnan(), 0.0, self.units.log()).sum(dim=-1)
        return self.mixture.log_prob(x / self.units) - jacobian


def _typical_changes(train: Float[Tensor, "window time feature"]) -> Float[Tensor, "feature"]:
    """The deviation of the one-step changes of each column (1 for a column that never changes)."""
    return typical_size(train.diff(dim=1), train)


def _mostly_complete(train: Float[Tensor, "window time feature"]) -> Float[Tensor, "some time feature"]:
    """The windows without missing values, if these are nearly all."""
    complete = ~train.isnan().any(dim=-1).any(dim=-1)
    return train[complete] if (~complete).double().mean() <= FEW_MISSING else train


@torch.no_grad()
def _between_particles(model: SMCTransformer, x: Tensor, n_scored: int, seed: int) -> float:
    """The share of the one-step variance that lies between particles, due to the latents."""
    parts = particle_filter(model, x, model.settings(64), as_generator(seed)).predictive.variance_parts()
    share = parts.between / (parts.between + parts.within)
    return float(share[..., :n_scored].mean())
