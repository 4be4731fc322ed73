"""The network's parts: covariances, encoders, stochastic self-attention, read-outs, observation models."""

from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.nn.covariance import COVARIANCES, Covariance

__all__ = ["COVARIANCES", "Covariance", "Noise", "StochasticSelfAttention"]
