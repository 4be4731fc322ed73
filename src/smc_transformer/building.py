"""From settings to parts: which encoder and which observation law a configuration names, and their first weights."""

import math

import torch
from torch import Generator, nn

from smc_transformer.config import SMCTransformerConfig
from smc_transformer.laws import (
    CategoricalLaw,
    GaussianLaw,
    HeteroscedasticLaw,
    NegativeBinomialLaw,
    ObservationLaw,
    StudentTLaw,
)
from smc_transformer.nn.encoders import (
    CausalEncoder,
    ConvolutionEncoder,
    LinearEncoder,
    RecurrentEncoder,
    TransformerEncoder,
)


def make_encoder(config: SMCTransformerConfig, n_features: int) -> CausalEncoder:
    """The encoder that the settings name."""
    if config.encoder == "linear":
        return LinearEncoder(n_features, config.d_model, config.position_encoding, config.max_positions)
    if config.encoder == "convolution":
        return ConvolutionEncoder(n_features, config.d_model, config.encoder_layers)
    if config.encoder == "transformer":
        return TransformerEncoder(
            n_features,
            config.d_model,
            config.encoder_layers,
            config.n_heads,
            config.d_ff,
            config.position_encoding,
            config.max_positions,
        )
    return RecurrentEncoder(config.encoder, n_features, config.d_model, config.encoder_layers)


def make_law(config: SMCTransformerConfig) -> ObservationLaw:
    """The observation law that the settings name."""
    if config.observation == "heteroscedastic":
        return HeteroscedasticLaw(config.n_targets, config.initial_observation_variance)
    if config.observation == "student_t":
        return StudentTLaw(config.n_targets, config.initial_observation_variance)
    if config.observation == "negative_binomial":
        return NegativeBinomialLaw(config.n_targets)
    if config.observation == "categorical":
        return CategoricalLaw(config.n_classes or 0)
    return GaussianLaw(config.n_targets, config.observation_covariance, config.initial_observation_variance)


@torch.no_grad()
def initialise_weights(module: nn.Module, generator: Generator | None) -> None:
    """Draw all linear, convolution and recurrent weights, uniform within 1 / sqrt(fan in)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv1d):
            bound = 1 / math.sqrt(part.weight[0].numel())
        elif isinstance(part, nn.LSTM | nn.GRU):
            bound = 1 / math.sqrt(part.hidden_size)
        else:
            continue
        for parameter in part.parameters(recurse=False):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
