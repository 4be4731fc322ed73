"""Causal encoders: what lies below the stochastic attention.

A new one is a new file here and a line in `ENCODERS`, where `SMCTransformerConfig.encoder` finds it by name; or a
user's own module.
"""

from collections.abc import Callable
from typing import NamedTuple

from smc_transformer.nn.encoders.base import CausalEncoder, as_encoder
from smc_transformer.nn.encoders.changes import ChangesEncoder
from smc_transformer.nn.encoders.convolution import ConvolutionEncoder
from smc_transformer.nn.encoders.linear import LinearEncoder
from smc_transformer.nn.encoders.recurrent import RecurrentEncoder
from smc_transformer.nn.encoders.transformer import TransformerEncoder

__all__ = ["ENCODERS", "CausalEncoder", "ChangesEncoder", "EncoderSettings", "as_encoder", "make_encoder"]


class EncoderSettings(NamedTuple):
    """What an encoder may be made from; the names are those of `SMCTransformerConfig`."""

    n_features: int
    d_model: int
    encoder_layers: int
    n_heads: int
    d_ff: int
    position_encoding: str | None
    max_positions: int


ENCODERS: dict[str, Callable[[EncoderSettings], CausalEncoder]] = {
    "linear": lambda s: LinearEncoder(s.n_features, s.d_model, s.position_encoding, s.max_positions),
    "transformer": lambda s: TransformerEncoder(
        s.n_features, s.d_model, s.encoder_layers, s.n_heads, s.d_ff, s.position_encoding, s.max_positions
    ),
    "lstm": lambda s: RecurrentEncoder("lstm", s.n_features, s.d_model, s.encoder_layers),
    "gru": lambda s: RecurrentEncoder("gru", s.n_features, s.d_model, s.encoder_layers),
    "convolution": lambda s: ConvolutionEncoder(s.n_features, s.d_model, s.encoder_layers),
}


def make_encoder(name: str, settings: EncoderSettings, *, input_changes: bool = False) -> CausalEncoder:
    """The encoder of that name; with `input_changes` it also sees how the features have changed."""
    if not input_changes:
        return ENCODERS[name](settings)
    doubled = settings._replace(n_features=2 * settings.n_features)
    return ChangesEncoder(ENCODERS[name](doubled), settings.n_features)
