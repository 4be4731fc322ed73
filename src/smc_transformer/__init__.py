"""The Monte Carlo Transformer: forecasts a distribution by sequential Monte Carlo inside self-attention."""

from typing import TYPE_CHECKING, Any

from smc_transformer._version import __version__

if TYPE_CHECKING:
    from smc_transformer.config import LearningSettings, SMCTransformerConfig
    from smc_transformer.forecaster import Forecaster
    from smc_transformer.inference.filter import FilterResult
    from smc_transformer.inference.settings import InferenceSettings
    from smc_transformer.learning import Trainer
    from smc_transformer.model import SMCTransformer
    from smc_transformer.nn.attention import StochasticSelfAttention
    from smc_transformer.nn.encoders import CausalEncoder
    from smc_transformer.nn.observation import GaussianMixture, ObservationModel
    from smc_transformer.predictive import Mixture
    from smc_transformer.smc.weights import WeightCollapseError

__all__ = [
    "CausalEncoder",
    "FilterResult",
    "Forecaster",
    "GaussianMixture",
    "InferenceSettings",
    "LearningSettings",
    "Mixture",
    "ObservationModel",
    "SMCTransformer",
    "SMCTransformerConfig",
    "StochasticSelfAttention",
    "Trainer",
    "WeightCollapseError",
    "__version__",
]

# Where the public names live. They are imported when first used (PEP 562), so that `smct --help` need not wait
# for torch.
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
