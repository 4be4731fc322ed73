"""Observation laws: how X_t is distributed. A new one is a new file here, or a user's own class."""

from smc_transformer.nn.observation.base import ObservationLaw
from smc_transformer.nn.observation.categorical import CategoricalLaw, CategoricalMixture
from smc_transformer.nn.observation.gaussian import GaussianLaw, GaussianMixture
from smc_transformer.nn.observation.heteroscedastic import HeteroscedasticLaw
from smc_transformer.nn.observation.negative_binomial import NegativeBinomialLaw
from smc_transformer.nn.observation.student_t import StudentTLaw

__all__ = [
    "CategoricalLaw",
    "CategoricalMixture",
    "GaussianLaw",
    "GaussianMixture",
    "HeteroscedasticLaw",
    "NegativeBinomialLaw",
    "ObservationLaw",
    "StudentTLaw",
]
