"""Proof 7: EM gives back the covariances of simulated data, and its update is the formula."""

import functools
import math

import pytest
import torch
from helpers.models import (
    STRUCTURES,
    TINY_SEQUENCE,
    make_model,
    random_covariance,
    sequences,
    simulate,
    tiny_model,
)
from helpers.oracles import quadrature
from helpers.second_moments import assert_statistics_are_posterior_moments, training_statistics

from smc_transformer.inference.replay import TrajectoryInputs
from smc_transformer.learning import (
    em_step,
    fit,
    negative_log_likelihood,
    power_step_size,
    training_step,
)
from smc_transformer.learning.em import Statistics, em_statistics
from smc_transformer.learning.objective import Trajectories
from smc_transformer.nn import COVARIANCES, Noise
from smc_transformer.smc import uniform_log_weights


def project(matrix, structure):
    """The maximum-likelihood projection of a second moment to a structure."""
    if structure == "isotropic":
        return matrix.diagonal().mean() * torch.eye(len(matrix), dtype=matrix.dtype)
    return matrix.diagonal().diag() if structure == "diagonal" else matrix


def seen_along(targets, *noise_particles_and_weights):
    """Trajectories with all that statistics are made of."""
    return Trajectories(TrajectoryInputs(None, None, targets), *noise_particles_and_weights)


def test_step_sizes_are_those_of_the_paper():
    step_size = power_step_size()
    assert step_size(1) == 1.0
    assert step_size(32) == pytest.approx(32**-0.6)
    assert power_step_size(offset=100)(28) == pytest.approx(128**-0.6)
    with pytest.raises(ValueError, match=r"\(0\.5, 1\]"):
        power_step_size(0.4)
    with pytest.raises(ValueError, match="offset must be at least 0"):
        power_step_size(offset=-1)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_update_is_the_formula_on_a_case_made_by_hand(structure):
    model = make_model(
        n_inputs=2,
        n_targets=2,
        d_model=2,
        observation_covariance=structure,
        covariance=structure,
        noise_learning="em",
    )
    residuals = torch.tensor([[[[1.0, 2.0]], [[3.0, 0.0]]]], dtype=torch.float64)  # one step, two trajectories
    weights = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    eps = torch.tensor([[[[2.0, 0.0]], [[0.0, 1.0]]]], dtype=torch.float64)
    noise = Noise(eps, 2 * eps, 3 * eps, 4 * eps)
    means, trajectories = torch.zeros(1, 2, 1, 2).double(), torch.arange(2).view(1, 2, 1)
    moments = em_statistics(model, seen_along(residuals, noise, trajectories, weights.log()), means)
    by_hand = torch.tensor([[0.25 * 1 + 0.75 * 9, 0.25 * 2], [0.25 * 2, 0.25 * 4]], dtype=torch.float64)
    torch.testing.assert_close(moments.observation, by_hand)

    before = model.observation.covariance.matrix().detach().clone()
    key_factor = model.attention.key_covariance.matrix().detach()
    em_step(model, moments, step_size=0.3)
    torch.testing.assert_close(
        model.observation.covariance.matrix().detach(), 0.7 * before + 0.3 * project(by_hand, structure)
    )
    # The residual of a latent is S^(1/2) eps: here with second moment S^(1/2) diag(4, 3) S^(1/2)^T for the keys.
    eps_moment = torch.tensor([[0.25 * 16, 0.0], [0.0, 0.75 * 4]], dtype=torch.float64)
    root = torch.linalg.cholesky(key_factor)
    expected = 0.7 * key_factor + 0.3 * project(root @ eps_moment @ root.T, structure)
    torch.testing.assert_close(model.attention.key_covariance.matrix().detach(), expected)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_simulated_data_give_back_the_observation_covariance(structure):
    """All else known, S_obs is found from a wrong start, and the held-out likelihood does not suffer."""
    model = make_model(
        n_inputs=2,
        n_targets=2,
        d_model=4,
        d_ff=4,
        n_particles=20,
        observation_covariance=structure,
        initial_latent_variance=0.05,
    )
    generator = torch.Generator().manual_seed(5)
    model.observation.covariance.assign_(random_covariance(0.4 * torch.eye(2).double(), generator))
    truth = model.observation.covariance.matrix().detach().clone()
    data, held_out = simulate(model, 400, 25, seed=1), simulate(model, 200, 25, seed=2)

    nll_of_truth = negative_log_likelihood(model, held_out, n_particles=50, generator=_seed(3))
    model.observation.covariance.assign_(2.0)
    for p in range(1, 61):
        batch = data[torch.randint(len(data), (100,), generator=generator)]
        em_step(model, training_step(model, batch, generator=generator).statistics, power_step_size()(p))
    found = model.observation.covariance.matrix().detach()
    nll_of_found = negative_log_likelihood(model, held_out, n_particles=50, generator=_seed(3))

    # 10,000 observations: a variance is known to sqrt(2 / N) = 1.4 % (less where latents blur it, here about a fifth
    # of the spread), so 4 % is about three standard errors.
    torch.testing.assert_close(found, truth, atol=0.04 * truth.diagonal().max().item(), rtol=0)
    # An error of 4 % costs about 0.04^2 / 4 = 0.0004 nats for each target.
    assert abs(nll_of_found - nll_of_truth) < 0.002


def _seed(number):
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize("gradient", ["pathwise", "score"])
@pytest.mark.parametrize(("window", "ess_threshold"), [(2, 1.0), (None, 0.5)])
def test_statistics_are_the_exact_posterior_second_moments(window, ess_threshold, gradient):
    model = tiny_model(window=window, ess_threshold=ess_threshold, gradient=gradient, noise_learning="em")
    assert_statistics_are_posterior_moments(model)


def test_statistics_of_fewer_trajectories_than_particles_are_the_exact_posterior_second_moments():
    assert_statistics_are_posterior_moments(tiny_model(window=2, noise_learning="em"), n_trajectories=50)


def test_posterior_second_moments_differ_from_the_covariances():
    """Else a statistic that ignores the data would pass the tests above."""
    model = tiny_model(window=2, noise_learning="em")
    exact = quadrature.exact(model, TINY_SEQUENCE).residual_squares
    for name, covariance in {**model.latent_covariances(), "observation": model.observation.covariance}.items():
        assert abs(getattr(exact, name) / covariance.matrix().item() - 1) > 0.02, name


def statistics_by_hand(model, x, *, gathered=True, weighted=True, n_particles, generator):
    """What the ancestral trajectories of a filter tell, with or without a mistake."""
    result = model.filter(x, n_particles, generator)
    trajectories, log_weights = result.trajectories, result.log_weights[:, :, -1]
    parameters = model.replay(x, result.noise.along(trajectories)).parameters.detach()
    if not gathered:
        trajectories = torch.arange(n_particles).view(1, -1, 1).expand_as(trajectories)
    if not weighted:
        log_weights = uniform_log_weights(log_weights)
    return em_statistics(model, seen_along(x[:, None, 1:], result.noise, trajectories, log_weights), parameters)


def test_statistics_are_those_of_the_weighted_ancestral_trajectories():
    model, x = tiny_model(window=2, noise_learning="em"), sequences(3, 6)
    found, expected = (
        statistics(model, x, n_particles=9, generator=_seed(0))
        for statistics in (training_statistics, statistics_by_hand)
    )
    torch.testing.assert_close(found.observation, expected.observation)
    torch.testing.assert_close(found.latent, expected.latent)


@pytest.mark.parametrize("mistake", ["gathered", "weighted"])
def test_noise_that_is_not_gathered_and_trajectories_without_weights_are_noticed(mistake):
    """The check itself must be able to fail."""
    wrong = functools.partial(statistics_by_hand, **{mistake: False})
    with pytest.raises(AssertionError, match="statistics off by"):
        assert_statistics_are_posterior_moments(tiny_model(window=2, noise_learning="em"), statistics=wrong)


@pytest.mark.parametrize("gradient", ["pathwise", "score"])
def test_em_happens_outside_the_gradient_and_once_for_a_batch(gradient):
    model = make_model(d_model=3, gradient=gradient, noise_learning="em")
    step = training_step(model, sequences(5, 6), generator=_seed(0))
    assert not step.statistics.observation.requires_grad
    assert step.statistics.observation.shape == (1, 1)  # averaged over the batch, not one update a sequence
    assert set(step.statistics.latent) == {"query", "key", "value", "attention"}
    assert all(not covariance.factor.requires_grad for covariance in model.latent_covariances().values())


def test_latent_covariances_learned_by_gradient_are_left_to_it():
    model = make_model(d_model=3, noise_learning="gradient")
    step = training_step(model, sequences(5, 6), generator=_seed(0))
    assert step.statistics.latent == {}
    step.objective.sum().backward()
    assert all(covariance.factor.grad is not None for covariance in model.latent_covariances().values())


def test_eigenvalues_are_floored_and_the_result_is_a_covariance():
    for dtype in (torch.float32, torch.float64):
        covariance = COVARIANCES["full"](3, 0.5).to(dtype)
        one_direction = torch.ones(3, 3, dtype=dtype)
        covariance.update_(one_direction, step_size=1.0)
        matrix = covariance.matrix().detach()
        torch.testing.assert_close(matrix, one_direction, atol=1e-5, rtol=0)
        assert torch.linalg.eigvalsh(matrix.double()).min() > 0
        assert covariance.log_density(torch.ones(3, dtype=dtype)).isfinite()


def test_covariances_scale_whiten_and_score_like_their_matrix():
    generator = _seed(0)
    for structure in STRUCTURES:
        covariance = COVARIANCES[structure](3, 0.5).double()
        covariance.assign_(random_covariance(torch.eye(3).double(), generator))
        matrix = covariance.matrix().detach()
        residual = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
        distribution = torch.distributions.MultivariateNormal(torch.zeros(3).double(), matrix)
        torch.testing.assert_close(covariance.log_density(residual), distribution.log_prob(residual))
        torch.testing.assert_close(covariance.whiten(covariance.scale(residual)), residual)
        torch.testing.assert_close(
            covariance.scale(torch.eye(3).double()).T @ covariance.scale(torch.eye(3).double()), matrix
        )


def test_em_step_takes_the_moments_as_given():
    model = make_model(d_model=2)
    em_step(model, Statistics(torch.full((1, 1), 3.0).double(), {}), step_size=1.0)
    assert model.observation.covariance.matrix().item() == pytest.approx(3.0)


# --- covariances that are not to be learned, and values that no covariance has ------------------------------------


@pytest.mark.parametrize("noise_learning", ["gradient", "em"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_zero_covariances_stay_zero_when_loaded_into_a_default_model(structure, noise_learning):
    settings = {"d_model": 4, "d_ff": 4, "covariance": structure, "noise_learning": noise_learning}
    model = make_model(**settings)
    model.load_state_dict(make_model(initial_latent_variance=0.0, **settings).state_dict())
    fit(model, sequences(8, 5), epochs=2, batch_size=4, progress=False)
    assert all(covariance.is_zero for covariance in model.latent_covariances().values())


@pytest.mark.parametrize("noise_learning", ["gradient", "em"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_zero_covariances_stay_zero_when_everything_is_asked_for_gradients(structure, noise_learning):
    model = make_model(
        d_model=4, d_ff=4, covariance=structure, noise_learning=noise_learning, initial_latent_variance=0.0
    )
    model.requires_grad_(True)
    fit(model, sequences(8, 5), epochs=2, batch_size=4, progress=False)
    assert all(covariance.is_zero for covariance in model.latent_covariances().values())


@pytest.mark.parametrize("noise_learning", ["gradient", "em"])
def test_the_optimiser_leaves_what_em_learns_alone_when_everything_is_asked_for_gradients(noise_learning):
    model = make_model(d_model=4, d_ff=4, noise_learning=noise_learning)
    covariances = {**model.latent_covariances(), "observation": model.observation.covariance}
    before = {name: covariance.factor.detach().clone() for name, covariance in covariances.items()}
    model.requires_grad_(True)
    fit(model, sequences(8, 5), epochs=2, batch_size=4, em_step_size=None, progress=False)
    unmoved = {name for name, covariance in covariances.items() if torch.equal(covariance.factor, before[name])}
    assert unmoved == (set(covariances) if noise_learning == "em" else {"observation"})


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.eye(2), r"must be 3 x 3, got \(2, 2\)"),
        (torch.ones(3), r"must be 3 x 3, got \(3,\)"),
        (torch.eye(3).fill_diagonal_(math.nan), "must be finite"),
        (torch.eye(3).fill_diagonal_(math.inf), "must be finite"),
        (math.nan, "must be finite"),
        (math.inf, "must be finite"),
        (-0.5, "variances of at least 0"),
        (torch.tensor([1.0, -1e-3, 1.0]).diag(), "variances of at least 0"),
    ],
    ids=["too small", "vector", "NaN", "infinite", "NaN number", "infinite number", "negative number", "negative"],
)
def test_what_is_no_covariance_is_rejected_and_changes_nothing(structure, value, message):
    covariance = COVARIANCES[structure](3, 0.5)
    before = covariance.matrix().detach().clone()
    with pytest.raises(ValueError, match=message):
        covariance.assign_(value)
    assert torch.equal(covariance.matrix(), before)


def test_a_zero_covariance_ignores_em():
    covariance = COVARIANCES["diagonal"](2, 0.0)
    covariance.update_(torch.eye(2), step_size=0.5)
    assert covariance.is_zero
