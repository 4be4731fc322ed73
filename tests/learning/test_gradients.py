"""Proof 4: both score estimators against the exact gradient, for every parameter, covariances included."""

import functools

import pytest
import torch
from helpers.gradients import assert_gradients_match, estimated_gradient, exact_gradient, objective
from helpers.models import STRUCTURES, TINY_SEQUENCE, linear_model, sequences, tiny_model
from helpers.oracles import linear_gaussian, quadrature

ESTIMATORS = ("pathwise", "score")


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


def objective_by_hand(model, x, *, weighted=True, n_particles, generator):
    """The mean log density along the ancestral trajectories of a filter, with or without their weights."""
    result = model.filter(x, n_particles, generator)
    weights = result.log_weights[:, :, -1].exp() if weighted else 1 / n_particles
    log_density = model.replay(x, result.noise.along(result.trajectories)).log_density.sum(dim=-1)
    return (weights * log_density).sum(dim=1)


def test_the_objective_is_the_weighted_density_along_ancestral_trajectories():
    model, x = tiny_model(window=2), sequences(3, 6)
    found, expected = (
        function(model, x, n_particles=9, generator=torch.Generator().manual_seed(0))
        for function in (objective, objective_by_hand)
    )
    torch.testing.assert_close(found, expected)


def test_trajectories_without_their_weights_are_noticed():
    """The check itself must be able to fail: equal weights instead of W_T give another gradient."""
    model = tiny_model(window=2)
    exact = exact_gradient(model, quadrature.exact(model, TINY_SEQUENCE).log_likelihood)
    unweighted = functools.partial(objective_by_hand, weighted=False)
    with pytest.raises(AssertionError, match="another gradient"):
        assert_gradients_match(model, TINY_SEQUENCE, exact, objective=unweighted)
