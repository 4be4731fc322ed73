"""Proofs 2 and 3: likelihood, predictive distribution and smoothed latents against closed forms and quadrature."""

import pytest
import torch
from helpers.models import STRUCTURES, TINY_SEQUENCE, linear_model, make_model, mean_and_error, sequences, tiny_model
from helpers.oracles import linear_gaussian, quadrature

from smc_transformer import SMCTransformer
from smc_transformer.smc import RESAMPLERS


def repeated_filter(model: SMCTransformer, x, n_runs, n_particles, seed=0):
    """Independent filter runs on one sequence: the batch axis holds the runs."""
    return model.filter(x.expand(n_runs, -1, -1), n_particles, generator=seed)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_likelihood_is_unbiased_for_the_linear_model(structure):
    model = linear_model(structure)
    x = sequences(1, 4, 3)
    exact = linear_gaussian.log_likelihood(model, x).item()
    result = repeated_filter(model, x, n_runs=20_000, n_particles=5)
    ratio, error = mean_and_error(torch.exp(result.log_likelihood - exact))
    assert error < 0.03  # else the next trajectory would prove little
    assert abs(ratio - 1) < 4 * error


@pytest.mark.parametrize("resampling", RESAMPLERS)
@pytest.mark.parametrize("ess_threshold", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("window", [None, 2])
def test_likelihood_is_unbiased_against_quadrature(resampling, ess_threshold, window):
    model = tiny_model(resampling=resampling, ess_threshold=ess_threshold, window=window)
    exact = quadrature.exact(model, TINY_SEQUENCE).log_likelihood.item()
    result = repeated_filter(model, TINY_SEQUENCE, n_runs=20_000, n_particles=5)
    ratio, error = mean_and_error(torch.exp(result.log_likelihood - exact))
    assert error < 0.03
    assert abs(ratio - 1) < 4 * error


def test_quadrature_has_converged():
    for window in (None, 2):
        model = tiny_model(window=window)
        coarse = quadrature.exact(model, TINY_SEQUENCE, n_nodes=9)
        fine = quadrature.exact(model, TINY_SEQUENCE, n_nodes=13)
        for one, other in zip(coarse, fine, strict=True):
            torch.testing.assert_close(one, other, atol=1e-3, rtol=0)


def test_quadrature_agrees_with_the_closed_form_at_window_one():
    model = tiny_model(window=1)
    closed_form = linear_gaussian.log_likelihood(model, TINY_SEQUENCE.unsqueeze(0))[0]
    torch.testing.assert_close(quadrature.exact(model, TINY_SEQUENCE, n_nodes=4).log_likelihood, closed_form)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_log_likelihood_converges_as_particles_grow(structure):
    """E log of an unbiased estimate is low by half its relative variance, which falls like 1 / M."""
    model = linear_model(structure)
    x = sequences(1, 4, 3)
    exact = linear_gaussian.log_likelihood(model, x).item()
    biases = []
    for n_particles, n_runs in ((4, 4000), (64, 4000), (1024, 250)):
        log_likelihood = repeated_filter(model, x, n_runs, n_particles).log_likelihood
        mean, error = mean_and_error(log_likelihood)
        expected_bias = -log_likelihood.var() / 2
        if n_particles > 4:  # where the expansion holds; its next term is of the order of the bias squared
            assert abs(mean - exact - expected_bias) < 4 * error + 10 * expected_bias**2
        biases.append((log_likelihood - exact).square().mean().sqrt())
    assert biases[1] < biases[0] / 2.5  # the error falls like 1 / sqrt(M): a factor of 4 is expected
    assert biases[2] < biases[1] / 2.5


@pytest.mark.parametrize("structure", STRUCTURES)
def test_one_step_predictive_converges_to_the_exact_gaussian(structure):
    model = linear_model(structure)
    x = sequences(3, 5, 3)
    mean, covariance = (tensor.detach() for tensor in linear_gaussian.distribution(model, x))
    variance = covariance.diagonal()
    latent_variance = variance - model.observation.covariance.matrix().diagonal()
    point = mean + 0.7 * variance.sqrt()
    exact_cdf = torch.special.ndtr(torch.tensor(0.7))
    for n_particles in (100, 10_000):
        predictive = model.filter(x, n_particles, generator=1).predictive
        # With window 1 the particles of a step are independent draws: standard errors are those of M draws.
        assert ((predictive.mean - mean).abs() < 5 * (latent_variance / n_particles).sqrt()).all()
        tolerance = 5 * latent_variance * (2 / n_particles) ** 0.5
        assert ((predictive.variance - variance).abs() < tolerance).all()
        spread = predictive.components.cdf(point.unsqueeze(1)).std(dim=1)
        assert (spread < 0.25).all()  # the cdfs of Gaussians around a point, not the 0 or 1 of draws
        assert ((predictive.cdf(point) - exact_cdf).abs() < 5 * spread / n_particles**0.5).all()


def assert_smoothed_moments_match(model, *, weighted=True):
    """Extrapolate from M and 2 M particles, which removes the bias of order 1 / M, and compare within 4.5 errors."""
    exact = quadrature.exact(model, TINY_SEQUENCE)
    few, many = (
        smoothed_moments(model, repeated_filter(model, TINY_SEQUENCE, 2000, n_particles, seed), weighted)
        for seed, n_particles in enumerate((300, 600))
    )
    for name in few:
        mean, error = mean_and_error(2 * many[name] - few[name])
        expected = getattr(exact, name)
        assert (error < 0.015 * (1 + expected.abs())).all(), f"{name}: too noisy to prove anything"
        assert ((mean - expected).abs() < 4.5 * error).all(), f"{name} differs from its exact value"


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("ess_threshold", [0.0, 1.0])
def test_smoothed_latents_match_quadrature(window, ess_threshold):
    assert_smoothed_moments_match(tiny_model(window=window, ess_threshold=ess_threshold))


def test_equal_weights_instead_of_the_last_weights_are_noticed():
    with pytest.raises(AssertionError, match="differs from its exact value"):
        assert_smoothed_moments_match(tiny_model(), weighted=False)


def smoothed_moments(model, result, weighted=True):
    """Smoothed moments of each run, (run, time), by name."""
    trajectories = result.trajectories
    x = TINY_SEQUENCE.expand(len(trajectories), -1, -1)
    with torch.no_grad():
        replayed = model.replay(x, result.noise.along(trajectories))
    weights = (
        result.log_weights[:, :, -1].exp() if weighted else torch.ones(trajectories.shape[:2]) / trajectories.shape[1]
    )

    def average(values):
        return (weights[:, :, None] * values.squeeze(-1)).sum(dim=1)

    return {
        "query": average(replayed.latents.query),
        "key": average(replayed.latents.key),
        "key_square": average(replayed.latents.key.square()),
        "value": average(replayed.latents.value),
        "value_square": average(replayed.latents.value.square()),
        "attention": average(replayed.attention),
    }


def test_predictive_density_at_the_data_is_the_likelihood_increment():
    model = make_model(d_model=4, ess_threshold=0.5, n_inputs=2, n_targets=2)
    x = sequences(3, 6, 2)
    result = model.filter(x, 7, generator=0)
    torch.testing.assert_close(result.predictive.log_prob(x[:, 1:]), result.log_increments)
