"""Statistics of EM, and their comparison with exact posterior second moments."""

import torch

from helpers.models import TINY_SEQUENCE, in_float32, mean_and_error
from helpers.oracles import quadrature
from smc_transformer.learning import training_step


def training_statistics(model, x, **options):
    """What training gives to EM."""
    return training_step(model, x, **options).statistics


def em_estimates(model, n_particles, seed, statistics=training_statistics, **options):
    """Statistics (group, 5) of every noise; each group averages 100 independent runs."""
    groups, model = [], in_float32(model)
    for group in range(40):
        generator = torch.Generator().manual_seed(1000 * seed + group)
        x = TINY_SEQUENCE.float().expand(100, -1, -1)
        found = statistics(model, x, n_particles=n_particles, generator=generator, **options)
        moments = {**found.latent, "observation": found.observation}
        groups.append(torch.stack([moments[name].reshape(()).double() for name in quadrature.ResidualSquares._fields]))
    return torch.stack(groups)


def assert_statistics_are_posterior_moments(model, **options):
    """Extrapolate from M and 2 M particles, which removes the bias of order 1 / M, and compare within 4.5 errors."""
    exact = torch.stack(quadrature.exact(model, TINY_SEQUENCE).residual_squares).detach()
    few, many = em_estimates(model, 100, seed=1, **options), em_estimates(model, 200, seed=2, **options)
    mean, error = mean_and_error(2 * many - few)
    assert (error < 0.01 * exact).all(), "too noisy to prove anything"
    deviation = dict(zip(quadrature.ResidualSquares._fields, (mean - exact) / error, strict=True))
    assert all(abs(errors) < 4.5 for errors in deviation.values()), f"statistics off by {deviation} standard errors"
