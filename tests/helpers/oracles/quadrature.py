"""A model with d_model = 1 and a linear read-out, any window, a few steps: exact by Gauss-Hermite quadrature.

Given the noises of queries and keys, the attention shares are fixed numbers and (v, z, X) is jointly Gaussian.
So only the noises of q(1), ..., q(T-1) and k(0), ..., k(T-1) need a grid (q(0) sees one slot, and a softmax over
one slot is 1). Written in torch, so that autograd gives the exact gradient.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch


class Exact(NamedTuple):
    """The exact answers for one sequence of T steps; moments are posterior means given X_1, ..., X_T."""

    log_likelihood: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    value_square: torch.Tensor
    attention: torch.Tensor
    key_square: torch.Tensor
    residual_squares: "ResidualSquares"


class ResidualSquares(NamedTuple):
    """Posterior second moments of every noise given X_1, ..., X_T, averaged over the steps: the exact E-step of EM."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attention: torch.Tensor
    observation: torch.Tensor


def exact(model, x, n_nodes=12):
    """Likelihood and smoothed moments for one sequence x of shape (time + 1, 1)."""
    config = model.config
    assert (config.d_model, config.n_inputs, config.n_targets, config.readout) == (1, 1, 1, "linear")
    n_steps = len(x) - 1
    inputs, targets = x[:-1, 0], x[1:, 0]

    def number(tensor):
        return tensor.reshape(())

    attention, read = model.attention, model.readout.projection
    embedding = inputs * number(model.encoder.projection.weight) + number(model.encoder.projection.bias)
    deviation = {
        name: number(covariance.matrix()).sqrt()
        for name, covariance in {
            "query": attention.query_covariance,
            "key": attention.key_covariance,
            "value": attention.value_covariance,
            "attention": attention.attention_covariance,
        }.items()
    }

    nodes, node_weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    n_dimensions = 2 * n_steps - 1
    grid = torch.tensor(list(itertools.product(nodes, repeat=n_dimensions)), dtype=x.dtype)
    products = itertools.product(node_weights / math.sqrt(2 * math.pi), repeat=n_dimensions)
    log_mass = torch.tensor(list(products), dtype=x.dtype).log().sum(dim=-1)

    no_noise = torch.zeros(len(grid), 1, dtype=x.dtype)
    query_noise = torch.cat((no_noise, grid[:, : n_steps - 1]), dim=-1)
    query = embedding * number(attention.query.weight) + deviation["query"] * query_noise
    key = embedding * number(attention.key.weight) + deviation["key"] * grid[:, n_steps - 1 :]

    # shares[i, t, s]: what step t + 1 gives to slot s at grid point i.
    scores = query.unsqueeze(-1) * key.unsqueeze(-2)
    step, slot = torch.arange(n_steps).unsqueeze(-1), torch.arange(n_steps)
    visible = slot <= step
    if config.window is not None:
        visible &= slot > step - config.window
    shares = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1)

    gain, output = number(read.weight), number(attention.output.weight)
    value_mean = embedding * number(attention.value.weight)
    value_to_x = gain * output * shares
    mean = value_to_x @ value_mean + gain * embedding + number(read.bias)
    if config.predict_change:
        mean = mean + inputs
    own_variance = gain**2 * deviation["attention"] ** 2 + number(model.observation.covariance.matrix())
    covariance = deviation["value"] ** 2 * value_to_x @ value_to_x.mT + own_variance * torch.eye(n_steps, dtype=x.dtype)
    residual = (targets - mean).unsqueeze(-1)
    solved = torch.linalg.solve(covariance, residual)
    log_density = -0.5 * (
        (residual * solved).sum(dim=(-1, -2)) + torch.logdet(covariance) + n_steps * math.log(2 * math.pi)
    )
    log_likelihood = torch.logsumexp(log_mass + log_density, dim=0)
    posterior = torch.exp(log_mass + log_density - log_likelihood).unsqueeze(-1)

    value = value_mean + deviation["value"] ** 2 * (value_to_x.mT @ solved).squeeze(-1)
    explained = (value_to_x * torch.linalg.solve(covariance, value_to_x)).sum(dim=-2)
    value_variance = deviation["value"] ** 2 - deviation["value"] ** 4 * explained
    z = output * (shares @ value.unsqueeze(-1)).squeeze(-1)
    z = z + gain * deviation["attention"] ** 2 * solved.squeeze(-1)

    # Of the Gaussian noises, conditioned on X: N(S A^T C^-1 r, S - S A^T C^-1 A S), with A what carries them to X.
    precision = torch.linalg.inv(covariance).diagonal(dim1=-2, dim2=-1)
    observation_variance = number(model.observation.covariance.matrix())
    attention_variance = deviation["attention"] ** 2

    def averaged(squares):
        return (posterior * squares).sum(dim=0).mean()

    query_squares = (deviation["query"] * query_noise).square()
    query_squares = torch.cat((deviation["query"] ** 2 + query_squares[:, :1], query_squares[:, 1:]), dim=-1)  # q(0)
    attention_squares = (gain * attention_variance * solved.squeeze(-1)).square()
    observation_squares = (observation_variance * solved.squeeze(-1)).square()
    residual_squares = ResidualSquares(
        query=averaged(query_squares),
        key=averaged((deviation["key"] * grid[:, n_steps - 1 :]).square()),
        value=averaged((value - value_mean).square() + value_variance),
        attention=averaged(attention_squares + attention_variance - (gain * attention_variance) ** 2 * precision),
        observation=averaged(observation_squares + observation_variance - observation_variance**2 * precision),
    )
    return Exact(
        log_likelihood=log_likelihood,
        query=(posterior * query).sum(dim=0),
        key=(posterior * key).sum(dim=0),
        value=(posterior * value).sum(dim=0),
        value_square=(posterior * (value.square() + value_variance)).sum(dim=0),
        attention=(posterior * z).sum(dim=0),
        key_square=(posterior * key.square()).sum(dim=0),
        residual_squares=residual_squares,
    )
