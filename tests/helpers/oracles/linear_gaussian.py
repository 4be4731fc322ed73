"""Window 1 and a linear read-out: X_t given X_{t-1} is Gaussian, and everything is known.

With one slot the softmax is 1, so z(t) = Wo (Wv e + Sv^(1/2) eps_v) + Sz^(1/2) eps_z and
X_t = W (z(t) + e) + b + noise. Written in torch, so that autograd gives the exact gradient.
"""

import math

import torch


def distribution(model, x):
    """Means (batch, time, n_targets) of X_1, ..., X_T and their common covariance."""
    assert model.config.window == 1
    assert model.config.readout == "linear"
    embedding = x[:, :-1] @ model.encoder.projection.weight.T + model.encoder.projection.bias
    read, output = model.readout.projection, model.attention.output.weight
    mean = (embedding @ model.attention.value.weight.T @ output.T + embedding) @ read.weight.T + read.bias
    if model.config.predict_change:
        mean = mean + x[:, :-1, : model.config.n_targets]
    latent = output @ model.attention.value_covariance.matrix() @ output.T
    latent = latent + model.attention.attention_covariance.matrix()
    covariance = read.weight @ latent @ read.weight.T + model.observation.covariance.matrix()
    return mean, covariance


def log_likelihood(model, x):
    """log p(X_1, ..., X_T | X_0) of each sequence, exactly."""
    mean, covariance = distribution(model, x)
    residual = x[:, 1:, : model.config.n_targets] - mean
    squared_norm = torch.einsum("bti,ij,btj->bt", residual, torch.linalg.inv(covariance), residual)
    log_determinant = torch.logdet(covariance) + residual.shape[-1] * math.log(2 * math.pi)
    return -0.5 * (squared_norm + log_determinant).sum(dim=-1)
