"""Bayes by backprop: prior, posterior and their divergence against closed forms."""

import math

import pytest
import torch
from helpers.baselines import make_windows, vector_sequences, with_gaps
from scipy import integrate
from scipy.stats import norm
from torch.distributions import Normal, kl_divergence

from smct_paper.baselines import BayesianLSTM
from smct_paper.baselines.base import fill_forward
from smct_paper.baselines.variational import GaussianPosterior, ScaleMixture

MIXTURE = ScaleMixture(sigma_1=1.0, sigma_2=0.1, pi=0.3)


def make_posterior(n_weights=50, deviation=0.3, seed=0):
    mean = 0.5 * torch.randn(n_weights, generator=torch.Generator().manual_seed(seed))
    posterior = GaussianPosterior(mean, deviation)
    with torch.no_grad():
        posterior.rho += torch.linspace(-1, 1, n_weights)
    return posterior


def test_the_prior_is_a_density():
    values = torch.linspace(-1, 1, 5)
    expected = [0.3 * norm.pdf(x) + 0.7 * norm.pdf(x, scale=0.1) for x in values.tolist()]
    assert MIXTURE.log_prob(values).exp().tolist() == pytest.approx(expected, rel=1e-5)
    total = integrate.quad(lambda x: MIXTURE.log_prob(torch.tensor([x])).exp().item(), -8, 8, points=[0], limit=200)[0]
    assert total == pytest.approx(1, abs=1e-4)


def test_the_prior_draws_have_its_moments():
    draws = MIXTURE.sample((400_000,), torch.Generator().manual_seed(0))
    second = 0.3 + 0.7 * 0.01
    fourth = 3 * (0.3 + 0.7 * 0.0001)
    assert draws.mean().item() == pytest.approx(0, abs=5 * math.sqrt(second / 400_000))
    assert draws.square().mean().item() == pytest.approx(second, rel=0.02)
    assert draws.pow(4).mean().item() == pytest.approx(fourth, rel=0.05)


def test_the_posterior_draws_have_its_moments():
    posterior = make_posterior()
    draws = posterior.sample(40_000, torch.Generator().manual_seed(0)).detach()
    deviation = posterior.deviation.detach()
    assert ((draws.mean(dim=0) - posterior.mean).abs() < 5 * deviation / 200).all()
    torch.testing.assert_close(draws.std(dim=0), deviation, rtol=0.02, atol=0)
    correlation = torch.corrcoef(draws[:, :2].T)[0, 1].item()
    assert abs(correlation) < 5 / 200


def test_the_initial_deviation_is_the_given_one():
    assert GaussianPosterior(torch.zeros(3), 0.0025).deviation.tolist() == pytest.approx([0.0025] * 3, rel=1e-4)


@pytest.mark.parametrize("prior", [ScaleMixture(0.1, 0.002, 1.0), ScaleMixture(5.0, 0.1, 0.0)])
def test_the_divergence_from_a_single_gaussian_is_the_closed_form(prior):
    posterior = make_posterior()
    expected = kl_divergence(Normal(posterior.mean, posterior.deviation), Normal(0.0, 0.1)).sum()
    torch.testing.assert_close(posterior.divergence(prior, torch.empty(0, 50)), expected, rtol=1e-5, atol=0)


def test_the_divergence_from_a_mixture_is_the_integral():
    posterior = make_posterior(n_weights=3)
    drawn = posterior.sample(200_000, torch.Generator().manual_seed(0))
    expected = 0.0
    for mean, deviation in zip(posterior.mean.tolist(), posterior.deviation.tolist(), strict=True):

        def integrand(x, mean=mean, deviation=deviation):
            prior = 0.3 * norm.pdf(x) + 0.7 * norm.pdf(x, scale=0.1)
            return norm.pdf(x, mean, deviation) * (norm.logpdf(x, mean, deviation) - math.log(prior))

        reach = 8 * deviation
        expected += integrate.quad(integrand, mean - reach, mean + reach, points=[0.0], limit=200)[0]
    assert posterior.divergence(MIXTURE, drawn).item() == pytest.approx(expected, rel=0.02)


def test_draws_of_a_mixtures_divergence_agree_with_the_closed_form_where_there_is_one():
    """Two equal parts are one Gaussian: averaging over draws must come to the same."""
    posterior = make_posterior()
    drawn = posterior.sample(20_000, torch.Generator().manual_seed(0))
    almost = ScaleMixture(0.4, 0.4 + 1e-9, 0.5)
    assert almost.sole_deviation is None
    exact = posterior.divergence(ScaleMixture(0.4, 0.4, 0.5), drawn)
    torch.testing.assert_close(posterior.divergence(almost, drawn), exact, rtol=0.01, atol=0)


def test_the_divergence_pulls_the_posterior_to_the_prior():
    posterior = make_posterior()
    optimiser = torch.optim.Adam(posterior.parameters(), lr=0.05)
    for _ in range(400):
        optimiser.zero_grad()
        posterior.divergence(ScaleMixture(0.1, 0.002, 1.0), torch.empty(0, 50)).backward()
        optimiser.step()
    assert posterior.mean.abs().max().item() < 1e-2
    torch.testing.assert_close(posterior.deviation, torch.full((50,), 0.1), rtol=0.01, atol=0)


def test_gradients_pass_through_draws():
    posterior = make_posterior()
    posterior.sample(5, torch.Generator().manual_seed(0)).square().sum().backward()
    assert (posterior.mean.grad != 0).all()
    assert (posterior.rho.grad != 0).all()


def test_the_loss_is_the_mean_error_plus_the_divergence_of_each_observed_value():
    """With M draws: mean over draws of the mse, plus KL / (number of observed training values)."""
    x, _ = vector_sequences(n_sequences=30)
    data = make_windows(with_gaps(x), n_targets=2, n_modelled=3)
    network = BayesianLSTM(elbo_samples=4, hidden_size=8).build(data, torch.Generator().manual_seed(0)).eval()
    n_observed = int((~data.train[:, 1:].isnan()).sum())
    assert n_observed < data.train[:, 1:].numel()

    drawn = network.posterior.sample(4, torch.Generator().manual_seed(3))
    predictions = network.all_steps(fill_forward(data.train)[:, :-1], drawn)
    seen = ~data.train[:, 1:].isnan()
    errors = [(predictions[:, number] - data.train[:, 1:])[seen].square().mean() for number in range(4)]
    divergence = kl_divergence(Normal(network.posterior.mean, network.posterior.deviation), Normal(0.0, 0.1)).sum()
    expected = torch.stack(errors).mean() + divergence / n_observed
    torch.testing.assert_close(network.loss(data.train, torch.Generator().manual_seed(3)), expected)
