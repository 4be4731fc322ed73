"""The SMC Transformer as a method of the experiments: trained in two stages, widened, and scored like the others.

1. The likelihood: filter, smoothing lines, Fisher's identity, EM (the whole training of the paper's configuration).
2. The score of free-running forecasts, from where the likelihood has ended.
3. A factor on the noise for each task, so that validation intervals cover what they should.

Inside, values are in units of a typical one-step change, if the settings say so: the net then predicts numbers of the
order of one, whatever the data set. Nothing here looks at test windows.
"""

import copy
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.baselines.base import Method, Predictive
from smc_transformer.config import SMCTransformerConfig
from smc_transformer.empirical import Samples
from smc_transformer.evaluation import evenly_spaced
from smc_transformer.filtering import particle_filter
from smc_transformer.learning import ForecastScore, Goal, Likelihood, Trainer, power_step_size, warmup_cosine
from smc_transformer.learning.calibration import widen_to_cover
from smc_transformer.learning.schedule import Schedule, warmup_inverse_sqrt
from smc_transformer.metrics import covered
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.encoders.changes import ChangesEncoder, typical_size
from smc_transformer.predictive import Mixture
from smc_transformer.randomness import as_generator

if TYPE_CHECKING:
    from smc_transformer.datasets import Windows

VALIDATION_WINDOWS = 250
"""Validation windows, evenly spaced, by which epochs are chosen and noise is widened."""
VALIDATION_PATHS = 32
"""Paths of each of them."""
WIDENING_DRAWS = 150
"""Draws by which the width of intervals is judged."""
FEW_MISSING = 0.1
"""Up to this share of training windows with missing values are left out: the others train several times faster."""


@dataclass(frozen=True)
class Stage:
    """One training.

    Attributes:
        steps: batches in all.
        validations: how often the validation loss is taken, evenly over the steps.
        batch_size: sequences in a batch.
        learning_rate: its peak (of the Vaswani schedule: a factor on it).
        schedule: "cosine" (with a warm-up of `warmup` of the steps) or "vaswani" (the paper).
        warmup: share of the steps in which the learning rate rises.
        weight_decay: of AdamW; 0 is Adam.
        averaging: share of the old in a running average of the weights; None: none.
        em_offset: offset of the EM steps, (p + offset)^-0.6.
        n_paths: forecast paths of each sequence, where forecasts are scored.
        patience: stop after so many validations without a better one; None: never.
    """

    steps: int
    validations: int = 12
    batch_size: int = 64
    learning_rate: float = 3e-3
    schedule: str = "cosine"
    warmup: float = 0.1
    weight_decay: float = 0.0
    averaging: float | None = 0.99
    em_offset: int = 0
    n_paths: int = 16
    patience: int | None = None

    def trainer(self, model: SMCTransformer, goal: Goal, seed: int, *, progress: bool) -> Trainer:
        """The trainer of this stage."""
        return Trainer(
            model,
            goal=goal,
            epochs=min(self.steps, self.validations),
            steps_per_epoch=max(1, self.steps // self.validations),
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            optimiser=self._optimiser,
            schedule=self._schedule(model.config.d_model),
            em_step_size=power_step_size(offset=self.em_offset),
            averaging=self.averaging,
            patience=self.patience,
            seed=seed,
            progress=progress,
        )

    def _optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=self.weight_decay, fused=True)

    def _schedule(self, d_model: int) -> Schedule:
        n_warmup = max(1, round(self.warmup * self.steps))
        return (
            warmup_inverse_sqrt(d_model, n_warmup)
            if self.schedule == "vaswani"
            else warmup_cosine(self.steps, n_warmup)
        )


@dataclass(frozen=True)
class SMCSettings:
    """All that defines a configuration of the SMC Transformer in the experiments.

    Attributes:
        model: settings of `SMCTransformerConfig`, without the numbers of inputs and targets.
        likelihood: the first stage.
        forecast: the second; None: the likelihood is all.
        widen_to: share of validation observations that 95 % intervals should cover; None: as they are.
        widening_blocks: consecutive blocks of validation windows whose median coverage counts, so that one storm does
            not set the width of all intervals.
        units_of_change: whether values are divided by the deviation of their one-step changes.
        particles: particles that filter histories and test windows.
    """

    model: dict[str, Any] = field(default_factory=dict)
    likelihood: Stage = Stage(1000)
    forecast: Stage | None = None
    widen_to: float | None = None
    widening_blocks: int = 5
    units_of_change: bool = False
    particles: int = 64


class SMCMethod(Method):
    """The SMC Transformer with given settings."""

    def __init__(self, settings: SMCSettings):
        self.chosen = settings

    def settings(self) -> dict[str, Any]:
        return asdict(self.chosen)

    def fit(self, data: "Windows", *, seed: int, progress: bool = False) -> dict[str, Any]:
        chosen = self.chosen
        self.n_modelled = data.n_modelled
        self.units = _typical_changes(data.train) if chosen.units_of_change else data.train.new_ones(data.n_inputs)
        train = _mostly_complete(data.train) / self.units
        validation = data.validation[evenly_spaced(len(data.validation), VALIDATION_WINDOWS)] / self.units
        config = SMCTransformerConfig(n_inputs=data.n_inputs, n_targets=data.n_modelled, **chosen.model)
        self.model = SMCTransformer(config, generator=seed)
        if isinstance(self.model.encoder, ChangesEncoder):
            self.model.encoder.set_scales_(train)
        facts: dict[str, Any] = {"training_windows": len(train)}
        stages: list[tuple[str, Stage | None, Goal]] = [
            ("likelihood", chosen.likelihood, Likelihood()),
            ("forecast", chosen.forecast, self._forecast_goal(data)),
        ]
        for name, stage, goal in stages:
            if stage is not None:
                history = stage.trainer(self.model, goal, seed, progress=progress).fit(train, validation)
                facts[name] = [report.validation_loss for report in history]
        self.one_step_model = copy.deepcopy(self.model)
        if chosen.widen_to is not None:
            blocks = chosen.widening_blocks
            facts["widening"] = {
                "unistep": widen_to_cover(
                    self.one_step_model,
                    lambda model: _one_step_coverage(model, validation, data, blocks),
                    chosen.widen_to,
                    6,
                ),
                "multistep": widen_to_cover(
                    self.model, lambda model: _path_coverage(model, validation, data, blocks), chosen.widen_to, 6
                ),
            }
        facts["between_particles"] = _between_particles(self.one_step_model, validation[:100], data.n_targets, seed)
        facts["parameters"] = sum(parameter.numel() for parameter in self.model.parameters())
        return facts

    def _forecast_goal(self, data: "Windows") -> ForecastScore:
        """Paths of the horizon, each scored target in the units of the data."""
        n_paths = 16 if self.chosen.forecast is None else self.chosen.forecast.n_paths
        weights = tuple(self.units[: data.n_targets].tolist())
        return ForecastScore(data.history, weights, n_paths=n_paths, validation_paths=VALIDATION_PATHS)

    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | int | None = None
    ) -> Predictive:
        generator = as_generator(generator)
        mixture = particle_filter(self.one_step_model, x / self.units, 2 * self.chosen.particles, generator).predictive
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
    """A mixture in other units: draws for all that can be counted, the exact density.

    Args:
        mixture: the law in the model's units.
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
def _one_step_coverage(
    model: SMCTransformer, x: Float[Tensor, "window time feature"], data: "Windows", n_blocks: int
) -> float:
    """Coverage of 95 % intervals one step ahead."""
    draws = particle_filter(model, x, 32, as_generator(0)).predictive.sample(WIDENING_DRAWS, 0)
    return _share_covered(draws, x[:, 1:], data.n_targets, n_blocks)


@torch.no_grad()
def _path_coverage(
    model: SMCTransformer, x: Float[Tensor, "window time feature"], data: "Windows", n_blocks: int
) -> float:
    """Coverage of 95 % intervals of forecasts."""
    split = data.history + 1
    known = x[:, split:, data.n_modelled :] if data.n_modelled < data.n_inputs else None
    paths = model.forecast(x[:, :split], data.horizon, WIDENING_DRAWS, known, 0, n_particles=32)
    return _share_covered(paths, x[:, split:], data.n_targets, n_blocks)


def _share_covered(
    draws: Float[Tensor, "window draw time target"],
    x: Float[Tensor, "window time feature"],
    n_scored: int,
    n_blocks: int,
) -> float:
    """The median over blocks of consecutive windows of the share that is covered."""
    observed = x[..., :n_scored]
    inside = covered(Samples(draws[..., :n_scored]).interval(0.95), observed)
    shares = inside.double().masked_fill(observed.isnan(), float("nan"))
    return float(torch.stack([block.nanmean() for block in shares.tensor_split(n_blocks)]).nanmedian())


@torch.no_grad()
def _between_particles(model: SMCTransformer, x: Tensor, n_scored: int, seed: int) -> float:
    """The share of the one-step variance that lies between particles: what the latents carry."""
    parts = particle_filter(model, x, 64, as_generator(seed)).predictive.variance_parts()
    share = parts.between / (parts.between + parts.within)
    return float(share[..., :n_scored].mean())
