"""The yardstick: the particle filter as a textbook writes it down, differentiated through all its steps.

At every step all particles' keys and values are copied to their children, one more slot is appended, and torch's
autograd records everything, so that the gradient of the weighted log density can be taken at the end.
"""

import math

import torch
from torch.nn import functional as F

from smc_transformer import SMCTransformer


def textbook_filter(model: SMCTransformer, x, n_particles, noise=None):
    """The objective whose gradient is the score, the log-likelihood, and S_obs's second moment.

    Args:
        model: a model with a Gaussian distribution and one head, whose weights are used.
        x: (batch, time + 1, n_inputs).
        n_particles: number of particles.
        noise: standard noise (4, batch, particle, time, d_model), or None to draw it step by step.
    """
    attention, batch, d_model = model.attention, len(x), model.config.d_model
    rows = torch.arange(batch).unsqueeze(-1)
    keys = values = x.new_empty(batch, n_particles, 0, d_model)
    along_trajectory = x.new_zeros(batch, n_particles)
    residuals = x.new_empty(batch, n_particles, 0, model.config.n_targets)
    log_likelihood = x.new_zeros(batch)
    weights = None
    for step in range(x.shape[1] - 1):
        if weights is not None:
            parents = torch.multinomial(weights, n_particles, replacement=True)
            keys, values = keys[rows, parents], values[rows, parents]
            along_trajectory, residuals = along_trajectory[rows, parents], residuals[rows, parents]
        eps = torch.randn(4, batch, n_particles, d_model) if noise is None else noise[:, :, :, step]
        embedding = model.encoder.projection(x[:, step]).unsqueeze(1)
        query = attention.query(embedding) + attention.query_covariance.scale(eps[0])
        key = attention.key(embedding) + attention.key_covariance.scale(eps[1])
        value = attention.value(embedding) + attention.value_covariance.scale(eps[2])
        keys = torch.cat((keys, key.unsqueeze(2)), dim=2)
        values = torch.cat((values, value.unsqueeze(2)), dim=2)
        shares = F.softmax(keys @ query.unsqueeze(-1) / math.sqrt(d_model), dim=2)
        context = (shares * values).sum(dim=2)
        z = attention.output(context) + attention.attention_covariance.scale(eps[3])
        mean = model.readout(z, embedding)
        residual = x[:, None, step + 1, : model.config.n_targets] - mean
        log_density = model.observation.covariance.log_density(residual)
        along_trajectory = along_trajectory + log_density
        residuals = torch.cat((residuals, residual.detach().unsqueeze(2)), dim=2)
        weights = F.softmax(log_density.detach(), dim=1)
        log_likelihood += torch.logsumexp(log_density.detach(), dim=1) - math.log(n_particles)
    objective = (weights * along_trajectory).sum(dim=1)
    second_moment = torch.einsum("bm,bmti,bmtj->ij", weights, residuals, residuals) / (batch * (x.shape[1] - 1))
    return objective, log_likelihood, second_moment
