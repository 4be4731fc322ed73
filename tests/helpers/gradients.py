"""Estimated gradients of the log-likelihood, and their comparison with exact ones."""

import torch

from helpers.models import in_float32, mean_and_error
from smc_transformer.learning import training_step


def exact_gradient(model, log_likelihood):
    """Of an exact log-likelihood, by parameter name."""
    parameters = learned(model)
    gradients = torch.autograd.grad(log_likelihood, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
    }


def learned(model):
    """The parameters that gradients learn."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def objective(model, x, **options):
    """What training takes the gradient of, for each sequence."""
    return training_step(model, x, **options).objective


def estimated_gradient(
    model, x, n_particles, *, n_groups=40, runs_per_group=100, seed=0, objective=objective, **options
):
    """Gradient estimates (group, ...) by parameter name; each group averages independent runs."""
    groups, model, x = [], in_float32(model), x.float()
    for group in range(n_groups):
        runs, generator = x.expand(runs_per_group, -1, -1), torch.Generator().manual_seed(1000 * seed + group)
        values = objective(model, runs, n_particles=n_particles, generator=generator, **options)
        model.zero_grad()
        values.mean().backward()
        groups.append({name: parameter.grad.double() for name, parameter in learned(model).items()})
    return {name: torch.stack([group[name] for group in groups]) for name in groups[0]}


def assert_gradients_match(model, x, exact, **options):
    """Extrapolate from M and 2 M particles, which removes the bias of order 1 / M, and compare within 4.5 errors.

    The largest of about a hundred independent deviations exceeds 4.5 standard errors once in a thousand times.
    """
    runs = {"pathwise": 100, "score": 400}[model.learning.gradient]  # the paper's formula has more variance
    few = estimated_gradient(model, x, 100, runs_per_group=runs, seed=1, **options)
    many = estimated_gradient(model, x, 200, runs_per_group=runs, seed=2, **options)
    for name, expected in exact.items():
        mean, error = mean_and_error(2 * many[name] - few[name])
        scale = expected.abs().max() + 0.2
        assert (error < 0.15 * scale).all(), f"{name}: too noisy to prove anything"
        assert ((mean - expected).abs() <= 4.5 * error + 1e-9).all(), f"{name}: another gradient"
