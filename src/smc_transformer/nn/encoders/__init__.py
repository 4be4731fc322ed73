"""Causal encoders: what lies below the stochastic attention. A new one is a new file here, or a user's own module."""

from smc_transformer.nn.encoders.base import CausalEncoder, State, WholePastEncoder, as_encoder
from smc_transformer.nn.encoders.changes import ChangesEncoder
from smc_transformer.nn.encoders.convolution import ConvolutionEncoder
from smc_transformer.nn.encoders.linear import LinearEncoder
from smc_transformer.nn.encoders.recurrent import RecurrentEncoder
from smc_transformer.nn.encoders.transformer import TransformerEncoder

__all__ = [
    "CausalEncoder",
    "ChangesEncoder",
    "ConvolutionEncoder",
    "LinearEncoder",
    "RecurrentEncoder",
    "State",
    "TransformerEncoder",
    "WholePastEncoder",
    "as_encoder",
]
