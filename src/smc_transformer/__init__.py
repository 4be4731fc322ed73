"""The Monte Carlo Transformer: forecasts a distribution by sequential Monte Carlo inside self-attention."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from smc_transformer._version import __version__

if TYPE_CHECKING:
    from smc_transformer.config import LearningSettings as LearningSettings
    from smc_transformer.config import SMCTransformerConfig as SMCTransformerConfig
    from smc_transformer.forecaster import Forecaster as Forecaster
    from smc_transformer.inference.filter import FilterResult as FilterResult
    from smc_transformer.inference.settings import InferenceSettings as InferenceSettings
    from smc_transformer.learning import Trainer as Trainer
    from smc_transformer.model import SMCTransformer as SMCTransformer
    from smc_transformer.nn.attention import StochasticSelfAttention as StochasticSelfAttention
    from smc_transformer.nn.encoders import CausalEncoder as CausalEncoder
    from smc_transformer.nn.observation import GaussianMixture as GaussianMixture
    from smc_transformer.nn.observation import ObservationModel as ObservationModel
    from smc_transformer.predictive import Mixture as Mixture
    from smc_transformer.smc.weights import WeightCollapseError as WeightCollapseError

# Where the public names live. They are imported when first used (PEP 562): `smct --help` need not wait for torch.
_HOMES = {
    "CausalEncoder": "smc_transformer.nn.encoders",
    "FilterResult": "smc_transformer.inference.filter",
    "Forecaster": "smc_transformer.forecaster",
    "GaussianMixture": "smc_transformer.nn.observation",
    "InferenceSettings": "smc_transformer.inference.settings",
    "LearningSettings": "smc_transformer.config",
    "Mixture": "smc_transformer.predictive",
    "ObservationModel": "smc_transformer.nn.observation",
    "SMCTransformer": "smc_transformer.model",
    "SMCTransformerConfig": "smc_transformer.config",
    "StochasticSelfAttention": "smc_transformer.nn.attention",
    "Trainer": "smc_transformer.learning",
    "WeightCollapseError": "smc_transformer.smc.weights",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
