"""The network's parts: covariances, encoders, stochastic self-attention, read-outs."""

from smc_transformer.nn.attention import Latents, Noise, StochasticSelfAttention
from smc_transformer.nn.covariance import (
    COVARIANCES,
    Covariance,
    DiagonalCovariance,
    FullCovariance,
    IsotropicCovariance,
)
from smc_transformer.nn.readout import LinearReadout, TransformerReadout

__all__ = [
    "COVARIANCES",
    "Covariance",
    "DiagonalCovariance",
    "FullCovariance",
    "IsotropicCovariance",
    "Latents",
    "LinearReadout",
    "Noise",
    "StochasticSelfAttention",
    "TransformerReadout",
]
