"""The SMC Transformer as a method of the experiments: trained in stages, widened, and scored like the others.

The recipe is the library's (`smc_transformer.learning.recipe`), but for its last step: each task has a factor on the
noise of its own. The likelihood alone is the whole training of the paper's configuration.

Inside, values are in units of a typical one-step change, if the settings say so: the net then predicts numbers of the
order of one, whatever the data set. Nothing here looks at test windows.
"""

import copy
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.empirical import Samples
from smc_transformer.inference.filter import particle_filter
from smc_transformer.learning import Recipe, evenly_spaced
from smc_transformer.model import SMCTransformer, split_settings
from smc_transformer.nn.encoders.changes import typical_size
from smc_transformer.nn.observation.zero_inflated import ZeroInflatedMixture
from smc_transformer.predictive import Mixture, Predictive
from smc_transformer.support.randomness import as_generator
from smct_paper.baselines.base import Method

if TYPE_CHECKING:
    from smct_paper.datasets import Windows

FEW_MISSING = 0.1
"""Up to this share of training windows with missing values are left out: the others train several times faster."""


@dataclass(frozen=True, kw_only=True)
class SMCSettings(Recipe):
    """All that defines a configuration of the SMC Transformer in the experiments: the recipe, and what is around it.

    Attributes:
        model: settings of `SMCTransformerConfig`, `InferenceSettings` and `LearningSettings` in one dictionary, without
            the numbers of inputs and targets.
        widen_to: share of validation observations that 95 % intervals should cover; None: as they are.
        widening_windows: validation windows, evenly spaced, by which noise is widened: a share near 95 % needs more of
            them than a mean.
        validation_windows: validation windows, evenly spaced, by which epochs are chosen.
        units_of_change: whether values are divided by the deviation of their one-step changes.
        particles: particles that filter the histories of forecasts.
        test_particles: those that filter whole test windows: what likelihoods are estimated by.
    """

    model: dict[str, Any] = field(default_factory=dict)
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
        of_the_data = {"n_inputs": 1, "n_targets": 1}
        parts = [part.to_dict().items() for part in split_settings({**of_the_data, **self.chosen.model})]
        model = {name: value for part in parts for name, value in part if name not in of_the_data}
        return {**asdict(self.chosen), "model": model}

    def fit(self, data: "Windows", *, seed: int, progress: bool = False) -> dict[str, Any]:
        chosen = self.chosen
        self.n_modelled = data.n_modelled
        self.units = data.train.new_ones(data.n_inputs)
        if chosen.units_of_change:
            self.units = typical_size(data.train.diff(dim=1), data.train)
        if chosen.model.get("observation") == "zero_inflated":
            # A power of two rounds nothing: values that are equal in one unit are in the other.
            self.units = self.units.log2().round().exp2()
        complete = ~data.train.isnan().any(dim=-1).any(dim=-1)
        few_missing = (~complete).double().mean() <= FEW_MISSING
        train = (data.train[complete] if few_missing else data.train) / self.units
        held_out = data.validation / self.units
        validation = held_out[evenly_spaced(len(held_out), chosen.validation_windows)]
        shape = {"n_inputs": data.n_inputs, "n_targets": data.n_modelled}
        self.model = SMCTransformer.from_settings({**shape, **chosen.model}, generator=seed)
        units = tuple(self.units[: data.n_targets].tolist())
        losses = chosen.train(
            self.model, train, validation, history=data.history, units=units, seed=seed, progress=progress
        )
        facts: dict[str, Any] = {"training_windows": len(train), **losses}
        facts["between_particles"] = between_particles(self.model, validation, data.n_targets, seed)
        self.one_step_model = copy.deepcopy(self.model)
        if chosen.widen_to is not None:
            judges = held_out[evenly_spaced(len(held_out), chosen.widening_windows)]
            widen = partial(chosen.widen, x=judges, level=chosen.widen_to, n_scored=data.n_targets, n_halvings=6)
            facts["widening"] = {
                "unistep": widen(self.one_step_model, histories=(None,)),
                "multistep": widen(self.model, histories=(data.history,)),
            }
        facts["parameters"] = sum(parameter.numel() for parameter in self.model.parameters())
        return facts

    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | int | None = None
    ) -> Predictive:
        generator = as_generator(generator)
        settings = self.one_step_model.settings(self.chosen.test_particles)
        mixture = particle_filter(self.one_step_model, x / self.units, settings, generator).predictive
        if not self.chosen.units_of_change and not isinstance(mixture, ZeroInflatedMixture):
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

    `units` are what one unit of the mixture's targets is. With a spike there is no density that could be compared.
    """

    def __init__(
        self, mixture: Mixture, units: Float[Tensor, "target"], generator: Generator | None = None, n_draws: int = 1000
    ):
        super().__init__(mixture.sample(n_draws, generator) * units)
        self.mixture = mixture
        self.units = units

    def log_prob(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time"] | None:
        """Joint log density; NaN is integrated out."""
        if isinstance(self.mixture, ZeroInflatedMixture):
            return None
        jacobian = torch.where(x.isnan(), 0.0, self.units.log()).sum(dim=-1)
        return self.mixture.log_prob(x / self.units) - jacobian


@torch.no_grad()
def between_particles(model: SMCTransformer, x: Tensor, n_scored: int, seed: int) -> float:
    """The share of the one-step variance that lies between particles, due to the latents."""
    parts = particle_filter(model, x, model.settings(64), as_generator(seed)).predictive.variance_parts()
    share = parts.between / (parts.between + parts.within)
    return float(share[..., :n_scored].mean())
