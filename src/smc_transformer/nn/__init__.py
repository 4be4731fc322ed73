"""The network's parts: covariances, the input encoder, stochastic self-attention, read-outs, observation laws."""

from smc_transformer.nn.attention import Latents, Noise, StochasticSelfAttention
from smc_transformer.nn.covariance import (
    COVARIANCES,
    Covariance,
    DiagonalCovariance,
    FullCovariance,
    IsotropicCovariance,
)
from smc_transformer.nn.encoder import LinearEncoder
from smc_transformer.nn.observation import GaussianObservation
from smc_transformer.nn.readout import LinearReadout, TransformerReadout

__all__ = [
    "COVARIANCES",
    "Covariance",
    "DiagonalCovariance",
    "FullCovariance",
    "GaussianObservation",
    "IsotropicCovariance",
    "Latents",
    "LinearEncoder",
    "LinearReadout",
    "Noise",
    "StochasticSelfAttention",
    "TransformerReadout",
]
