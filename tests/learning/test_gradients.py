"""Proof 4: both score estimators against the exact gradient, for every parameter, covariances included."""

import pytest
import torch
from helpers.models import TINY_SEQUENCE, linear_model, mean_and_error, sequences, tiny_model
from helpers.oracles import linear_gaussian, quadrature
from test_likelihood import STRUCTURES

from smc_transformer.learning import training_step

ESTIMATORS = ("pathwise", "score")


def exact_gradient(model, log_likelihood):
    parameters = learned(model)
    gradients = torch.autograd.grad(log_likelihood, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
    }


def learned(model):
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def estimated_gradient(model, x, n_particles, *, n_groups=40, runs_per_group=100, seed=0, **options):
    """Gradient estimates (group, ...) by parameter name; each group averages independent runs."""
    groups = []
    for group in range(n_groups):
        step = training_step(
            model,
            x.expand(runs_per_group, -1, -1),
            n_particles=n_particles,
            generator=torch.Generator().manual_seed(1000 * seed + group),
            **options,
        )
        model.zero_grad()
        step.objective.mean().backward()
        groups.append({name: parameter.grad.clone() for name, parameter in learned(model).items()})
    return {name: torch.stack([group[name] for group in groups]) for name in groups[0]}


def assert_gradients_match(model, x, exact, **options):
    """Extrapolate from M and 2 M particles, which removes the bias of order 1 / M, and compare within 4.5 errors.

    The largest of about a hundred independent deviations exceeds 4.5 standard errors once in a thousand times.
    """
    runs = {"pathwise": 100, "score": 400}[model.config.gradient]  # the paper's formula has more variance
    few = estimated_gradient(model, x, 100, runs_per_group=runs, seed=1, **options)
    many = estimated_gradient(model, x, 200, runs_per_group=runs, seed=2, **options)
    for name, expected in exact.items():
        mean, error = mean_and_error(2 * many[name] - few[name])
        scale = expected.abs().max() + 0.2
        assert (error < 0.15 * scale).all(), f"{name}: too noisy to prove anything"
        assert ((mean - expected).abs() <= 4.5 * error + 1e-9).all(), name


@pytest.mark.parametrize("gradient", ESTIMATORS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_linear_model(gradient, structure):
    model = linear_model(structure, gradient=gradient, d_model=2, n_inputs=2)
    x = sequences(1, 3, 2)
    exact = exact_gradient(model, linear_gaussian.log_likelihood(model, x).sum())
    assert_gradients_match(model, x, exact)


@pytest.mark.parametrize("gradient", ESTIMATORS)
@pytest.mark.parametrize(("window", "ess_threshold"), [(2, 1.0), (None, 0.5)])
def test_model_with_memory(gradient, window, ess_threshold):
    model = tiny_model(window=window, ess_threshold=ess_threshold, gradient=gradient)
    exact = exact_gradient(model, quadrature.exact(model, TINY_SEQUENCE).log_likelihood)
    assert exact["attention.query_covariance.factor"].abs() > 1e-3  # every noise matters here
    assert_gradients_match(model, TINY_SEQUENCE, exact)


@pytest.mark.parametrize("gradient", ESTIMATORS)
def test_fewer_trajectories_than_particles_estimate_the_same_gradient(gradient):
    model = tiny_model(window=2, gradient=gradient)
    exact = exact_gradient(model, quadrature.exact(model, TINY_SEQUENCE).log_likelihood)
    assert_gradients_match(model, TINY_SEQUENCE, exact, n_trajectories=20)


@pytest.mark.parametrize("gradient", ESTIMATORS)
def test_error_falls_as_particles_grow(gradient):
    model = tiny_model(window=2, gradient=gradient)
    exact = exact_gradient(model, quadrature.exact(model, TINY_SEQUENCE).log_likelihood)

    def root_mean_square_error(n_particles):
        estimates = estimated_gradient(model, TINY_SEQUENCE, n_particles, n_groups=200, runs_per_group=1)
        squares = [
            (estimates[name] - exact[name]).square().sum(dim=tuple(range(1, exact[name].ndim + 1))) for name in exact
        ]
        return torch.stack(squares).sum(dim=0).mean().sqrt()

    errors = [root_mean_square_error(n_particles) for n_particles in (10, 100, 1000)]
    # Like 1 / sqrt(M): a factor of 3.2 is expected for ten times the particles; 200 runs know it to about 10 %.
    assert errors[1] < errors[0] / 2
    assert errors[2] < errors[1] / 2


def test_trajectories_without_their_weights_are_noticed(monkeypatch):
    """The check itself must be able to fail: equal weights instead of W_T give another gradient."""
    from smc_transformer.smc.smoothers import SMOOTHERS
    from smc_transformer.smc.weights import uniform_log_weights

    honest = SMOOTHERS["genealogy"]

    def unweighted(*arguments):
        trajectories = honest(*arguments)
        return trajectories._replace(log_weights=uniform_log_weights(trajectories.log_weights))

    monkeypatch.setitem(SMOOTHERS, "genealogy", unweighted)
    model = tiny_model(window=2)
    exact = exact_gradient(model, quadrature.exact(model, TINY_SEQUENCE).log_likelihood)
    with pytest.raises(AssertionError):
        assert_gradients_match(model, TINY_SEQUENCE, exact)
