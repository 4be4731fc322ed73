"""The linear window-1 model with missing values, exactly: X_1, ..., X_T given X_0 are jointly Gaussian.

All targets of all steps form one long Gaussian vector; what is observed is a part of it. Likelihood, predictions and
smoothed values are conditionals of that vector. Written in torch, so that autograd gives the exact gradient.
"""

import math

import torch

from helpers.oracles import linear_gaussian


def joint(model, first, n_steps):
    """Mean and covariance of (X_1, ..., X_T) as one vector, given X_0 (n_inputs,); all inputs are targets."""
    size = model.config.n_targets
    assert model.config.n_inputs == size
    probes = torch.cat((torch.zeros(1, size), torch.eye(size))).to(first).view(size + 1, 1, size)
    responses, noise = linear_gaussian.distribution(model, probes.expand(-1, 2, -1))
    offset = responses[0, 0]
    step = (responses[1:, 0] - offset).T  # X_{t+1} = step X_t + offset + noise
    means, covariances = [step @ first + offset], [noise]
    for _ in range(n_steps - 1):
        means.append(step @ means[-1] + offset)
        covariances.append(step @ covariances[-1] @ step.T + noise)
    rows = []
    for t in range(n_steps):
        row = []
        for s in range(n_steps):
            early, late = min(s, t), max(s, t)
            block = torch.linalg.matrix_power(step, late - early) @ covariances[early]  # Cov(X_late, X_early)
            row.append(block if t >= s else block.T)
        rows.append(torch.cat(row, dim=1))
    return torch.cat(means), torch.cat(rows)


def log_likelihood(model, x):
    """log p(observed targets | X_0) of one sequence (time + 1, n_inputs) with NaN where values are missing."""
    mean, covariance = joint(model, x[0], len(x) - 1)
    values = x[1:].reshape(-1)
    known = ~values.isnan()
    residual = values[known] - mean[known]
    covariance = covariance[known][:, known]
    squared_norm = residual @ torch.linalg.solve(covariance, residual)
    return -0.5 * (squared_norm + torch.logdet(covariance) + known.sum() * math.log(2 * math.pi))


def conditional(model, x, n_known_steps):
    """Mean and covariance of all targets, as one vector, given what is observed of X_1, ..., X_{n_known_steps}."""
    mean, covariance = (tensor.detach() for tensor in joint(model, x[0], len(x) - 1))
    values = x[1:].reshape(-1)
    known = ~values.isnan()
    known[n_known_steps * x.shape[1] :] = False
    gain = torch.linalg.solve(covariance[known][:, known], covariance[known]).T
    return mean + gain @ (values[known] - mean[known]), covariance - gain @ covariance[known]
