"""observation models by name, as in `SMCTransformerConfig.observation`. A new one is a new file, and a line here."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from smc_transformer.nn.observation.base import ObservationModel
from smc_transformer.nn.observation.categorical import CategoricalObservation
from smc_transformer.nn.observation.gaussian import GaussianObservation
from smc_transformer.nn.observation.heteroscedastic import HeteroscedasticObservation
from smc_transformer.nn.observation.negative_binomial import NegativeBinomialObservation
from smc_transformer.nn.observation.student_t import StudentTObservation

if TYPE_CHECKING:
    from smc_transformer.config import SMCTransformerConfig


def _gaussian(config: "SMCTransformerConfig") -> ObservationModel:
    return GaussianObservation(config.n_targets, config.observation_covariance, config.initial_observation_variance)


OBSERVATION_MODELS: dict[str, Callable[["SMCTransformerConfig"], ObservationModel]] = {
    "gaussian": _gaussian,
    "heteroscedastic": lambda config: HeteroscedasticObservation(config.n_targets, config.initial_observation_variance),
    "student_t": lambda config: StudentTObservation(config.n_targets, config.initial_observation_variance),
    "negative_binomial": lambda config: NegativeBinomialObservation(config.n_targets),
    "categorical": lambda config: CategoricalObservation(config.n_classes or 0),
}
