"""Observation models: how X_t is distributed.

A new one is a new file here and a line in `OBSERVATION_MODELS`, where `SMCTransformerConfig.observation` finds it by
name; or a user's own class.
"""

from collections.abc import Callable
from typing import NamedTuple

from smc_transformer.nn.observation.base import ObservationModel as ObservationModel
from smc_transformer.nn.observation.categorical import CategoricalMixture as CategoricalMixture
from smc_transformer.nn.observation.categorical import CategoricalObservation as CategoricalObservation
from smc_transformer.nn.observation.gaussian import GaussianMixture as GaussianMixture
from smc_transformer.nn.observation.gaussian import GaussianObservation as GaussianObservation
from smc_transformer.nn.observation.heteroscedastic import HeteroscedasticObservation as HeteroscedasticObservation
from smc_transformer.nn.observation.negative_binomial import NegativeBinomialObservation as NegativeBinomialObservation
from smc_transformer.nn.observation.student_t import StudentTObservation as StudentTObservation
from smc_transformer.nn.observation.zero_inflated import ZeroInflatedObservation as ZeroInflatedObservation


class ObservationSettings(NamedTuple):
    """What an observation model may be made from; the names are those of `SMCTransformerConfig`."""

    n_targets: int
    observation_covariance: str
    initial_observation_variance: float
    n_classes: int | None


OBSERVATION_MODELS: dict[str, Callable[[ObservationSettings], ObservationModel]] = {
    "gaussian": lambda s: GaussianObservation(s.n_targets, s.observation_covariance, s.initial_observation_variance),
    "heteroscedastic": lambda s: HeteroscedasticObservation(s.n_targets, s.initial_observation_variance),
    "student_t": lambda s: StudentTObservation(s.n_targets, s.initial_observation_variance),
    "zero_inflated": lambda s: ZeroInflatedObservation(s.n_targets, s.initial_observation_variance),
    "negative_binomial": lambda s: NegativeBinomialObservation(s.n_targets),
    "categorical": lambda s: CategoricalObservation(s.n_classes or 0),
}
