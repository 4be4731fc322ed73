"""Proof 7: EM gives back the covariances of simulated data, and its update is the formula."""

import pytest
import torch
from helpers import make_model, random_covariance, sequences

from smc_transformer.learning import (
    em_statistics,
    em_step,
    negative_log_likelihood,
    power_step_size,
    training_step,
)
from smc_transformer.learning.em import Statistics
from smc_transformer.nn import COVARIANCES, Noise

STRUCTURES = ("isotropic", "diagonal", "full")


def project(matrix, structure):
    """The maximum-likelihood projection of a second moment to a structure."""
    if structure == "isotropic":
        return matrix.diagonal().mean() * torch.eye(len(matrix), dtype=matrix.dtype)
    return matrix.diagonal().diag() if structure == "diagonal" else matrix


def simulate(model, n_sequences, n_steps, seed):
    """Sequences drawn from the model itself: a forecast from nothing but X_0."""
    start = sequences(n_sequences, 0, model.config.n_inputs, seed=seed)
    future = model.forecast(start, n_steps, n_samples=1, generator=seed)
    return torch.cat((start, future[:, 0]), dim=1)


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
    residuals = torch.tensor([[[[1.0, 2.0]], [[3.0, 0.0]]]], dtype=torch.float64)  # one step, two lines
    weights = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    eps = torch.tensor([[[[2.0, 0.0]], [[0.0, 1.0]]]], dtype=torch.float64)
    noise = Noise(eps, 2 * eps, 3 * eps, 4 * eps)
    moments = em_statistics(model, residuals, torch.zeros(1, 2, 1, 2).double(), noise, weights.log())
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

    model.observation.covariance.assign_(2.0)
    nll_before = negative_log_likelihood(model, held_out, n_particles=50, generator=_seed(3))
    for p in range(1, 61):
        batch = data[torch.randint(len(data), (100,), generator=generator)]
        em_step(model, training_step(model, batch, generator=generator).statistics, power_step_size()(p))
    found = model.observation.covariance.matrix().detach()
    nll_after = negative_log_likelihood(model, held_out, n_particles=50, generator=_seed(3))

    # 10,000 observations: a variance is known to sqrt(2 / N) = 1.4 %, and to less where latents blur it (here
    # about a fifth of the spread); 5 standard errors of twice that.
    tolerance = 5 * 2 * (2 / 10_000) ** 0.5 * truth.diagonal().max()
    torch.testing.assert_close(found, truth, atol=tolerance.item(), rtol=0)
    assert nll_after < nll_before - 0.1


def _seed(number):
    return torch.Generator().manual_seed(number)


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
        law = torch.distributions.MultivariateNormal(torch.zeros(3).double(), matrix)
        torch.testing.assert_close(covariance.log_density(residual), law.log_prob(residual))
        torch.testing.assert_close(covariance.whiten(covariance.scale(residual)), residual)
        torch.testing.assert_close(
            covariance.scale(torch.eye(3).double()).T @ covariance.scale(torch.eye(3).double()), matrix
        )


def test_em_step_takes_the_moments_as_given():
    model = make_model(d_model=2)
    em_step(model, Statistics(torch.full((1, 1), 3.0).double(), {}), step_size=1.0)
    assert model.observation.covariance.matrix().item() == pytest.approx(3.0)
