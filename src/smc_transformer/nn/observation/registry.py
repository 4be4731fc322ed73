"""Observation laws by name, as in `SMCTransformerConfig.observation`. A new one is a new file, and a line here."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from smc_transformer.nn.observation.base import ObservationLaw
from smc_transformer.nn.observation.categorical import CategoricalLaw
from smc_transformer.nn.observation.gaussian import GaussianLaw
from smc_transformer.nn.observation.heteroscedastic import HeteroscedasticLaw
from smc_transformer.nn.observation.negative_binomial import NegativeBinomialLaw
from smc_transformer.nn.observation.student_t import StudentTLaw

if TYPE_CHECKING:
    from smc_transformer.config import SMCTransformerConfig


def _gaussian(config: "SMCTransformerConfig") -> ObservationLaw:
    return GaussianLaw(config.n_targets, config.observation_covariance, config.initial_observation_variance)


LAWS: dict[str, Callable[["SMCTransformerConfig"], ObservationLaw]] = {
    "gaussian": _gaussian,
    "heteroscedastic": lambda config: HeteroscedasticLaw(config.n_targets, config.initial_observation_variance),
    "student_t": lambda config: StudentTLaw(config.n_targets, config.initial_observation_variance),
    "negative_binomial": lambda config: NegativeBinomialLaw(config.n_targets),
    "categorical": lambda config: CategoricalLaw(config.n_classes or 0),
}
