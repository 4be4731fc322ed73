"""observation models: how X_t is distributed. A new one is a new file here, or a user's own class."""

from smc_transformer.nn.observation.base import ObservationModel
from smc_transformer.nn.observation.categorical import CategoricalMixture, CategoricalObservation
from smc_transformer.nn.observation.gaussian import GaussianMixture, GaussianObservation
from smc_transformer.nn.observation.heteroscedastic import HeteroscedasticObservation
from smc_transformer.nn.observation.negative_binomial import NegativeBinomialObservation
from smc_transformer.nn.observation.student_t import StudentTObservation

__all__ = [
    "CategoricalMixture",
    "CategoricalObservation",
    "GaussianMixture",
    "GaussianObservation",
    "HeteroscedasticObservation",
    "NegativeBinomialObservation",
    "ObservationModel",
    "StudentTObservation",
]
