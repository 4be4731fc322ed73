"""Encoders by name, as in `SMCTransformerConfig.encoder`. A new one is a new file, and a line here."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from smc_transformer.nn.encoders.base import CausalEncoder
from smc_transformer.nn.encoders.changes import ChangesEncoder
from smc_transformer.nn.encoders.convolution import ConvolutionEncoder
from smc_transformer.nn.encoders.linear import LinearEncoder
from smc_transformer.nn.encoders.recurrent import RecurrentEncoder
from smc_transformer.nn.encoders.transformer import TransformerEncoder

if TYPE_CHECKING:
    from smc_transformer.config import SMCTransformerConfig


def _linear(config: "SMCTransformerConfig", n_features: int) -> CausalEncoder:
    return LinearEncoder(n_features, config.d_model, config.position_encoding, config.max_positions)


def _transformer(config: "SMCTransformerConfig", n_features: int) -> CausalEncoder:
    return TransformerEncoder(
        n_features,
        config.d_model,
        config.encoder_layers,
        config.n_heads,
        config.d_ff,
        config.position_encoding,
        config.max_positions,
    )


def _recurrent(config: "SMCTransformerConfig", n_features: int) -> CausalEncoder:
    return RecurrentEncoder(config.encoder, n_features, config.d_model, config.encoder_layers)


def _convolution(config: "SMCTransformerConfig", n_features: int) -> CausalEncoder:
    return ConvolutionEncoder(n_features, config.d_model, config.encoder_layers)


def make_encoder(config: "SMCTransformerConfig", n_features: int) -> CausalEncoder:
    """The encoder that the settings name."""
    if not config.input_changes:
        return ENCODERS[config.encoder](config, n_features)
    return ChangesEncoder(ENCODERS[config.encoder](config, 2 * n_features), n_features)


ENCODERS: dict[str, Callable[["SMCTransformerConfig", int], CausalEncoder]] = {
    "linear": _linear,
    "transformer": _transformer,
    "lstm": _recurrent,
    "gru": _recurrent,
    "convolution": _convolution,
}
