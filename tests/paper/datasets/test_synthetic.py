import math

import numpy as np
import pytest
import torch
from scipy import stats

from smct_paper.datasets.synthetic import SYNTHETIC, MixtureAutoregression, split_sequences

LIMIT = 4.0
"""Standard errors allowed: a test compares some dozens of numbers, each beyond 4 with probability 6e-5."""

# Coefficients, probabilities and variance again, as the paper has them: the code must not vouch for itself.
OBSERVATIONS = {
    "model1": ((0.8,), (1.0,), 0.5),
    "model2": ((0.9, 0.54), (0.7, 0.3), 0.3),
    "model3": ((0.9, -0.9), (0.5, 0.5), 0.05),
}


@pytest.fixture(params=OBSERVATIONS)
def name(request):
    return request.param


def coefficient_moments(name):
    """E[A] and E[A^2]."""
    coefficients, probabilities, _ = (np.array(part) for part in OBSERVATIONS[name])
    return probabilities @ coefficients, probabilities @ coefficients**2


def variances(name, n_steps):
    """Var[X_t], t = 0, ..., n_steps, by Var[X_{t+1}] = E[A^2] Var[X_t] + variance."""
    _, second = coefficient_moments(name)
    values = [1.0]
    for _ in range(n_steps):
        values.append(second * values[-1] + OBSERVATIONS[name][2])
    return np.array(values)


def largest_z_score(samples, expected):
    """The largest |mean - expected| in standard errors: sequences (first axis) are independent."""
    error = samples.std(axis=0, ddof=1) / math.sqrt(len(samples))
    return (np.abs(samples.mean(axis=0) - expected) / error).max()


def draw(name, n_sequences=20_000, n_steps=24, seed=0):
    return SYNTHETIC[name].sample(n_sequences, n_steps, seed)[:, :, 0].double().numpy()


def test_sequences_start_at_time_zero_and_have_one_feature(name):
    assert SYNTHETIC[name].sample(5, 7, generator=0).shape == (5, 8, 1)
    assert SYNTHETIC[name].sample(generator=0).shape == (1000, 25, 1)


def test_means_are_zero(name):
    assert largest_z_score(draw(name), 0.0) < LIMIT


def test_variances_follow_their_recursion(name):
    assert largest_z_score(draw(name) ** 2, variances(name, 24)) < LIMIT


def test_neighbours_are_correlated_by_the_mean_coefficient(name):
    x = draw(name)
    mean, _ = coefficient_moments(name)
    assert largest_z_score(x[:, 1:] * x[:, :-1], mean * variances(name, 23)) < LIMIT


def test_coefficients_are_drawn_anew_at_each_step(name):
    # Were one coefficient kept for a whole sequence, E[A^2] would stand here instead of E[A]^2.
    x = draw(name)
    mean, _ = coefficient_moments(name)
    assert largest_z_score(x[:, 2:] * x[:, :-2], mean**2 * variances(name, 22)) < LIMIT


def test_the_check_of_fresh_coefficients_can_fail():
    _, second = coefficient_moments("model3")
    x = draw("model3")
    assert largest_z_score(x[:, 2:] * x[:, :-2], second * variances("model3", 22)) > 10 * LIMIT


def test_predictive_components_are_the_modes():
    x = torch.tensor([[1.0, -2.0, 0.5]]).unsqueeze(-1)
    distribution = SYNTHETIC["model2"].predictive(x)
    torch.testing.assert_close(distribution.components.mean[0, :, :, 0], torch.tensor([[0.9, -1.8], [0.54, -1.08]]))
    torch.testing.assert_close(distribution.log_weights.exp()[0], torch.tensor([[0.7, 0.7], [0.3, 0.3]]))
    torch.testing.assert_close(distribution.components.root @ distribution.components.root.T, torch.tensor([[0.3]]))


def test_predictive_has_the_type_of_the_sequences():
    x = SYNTHETIC["model3"].sample(2, 3, generator=0).double()
    assert SYNTHETIC["model3"].predictive(x).mean.dtype == torch.float64


def predictive_scores(name, distribution=None, n_sequences=2000):
    """Negative log-likelihoods and probability integral transforms of X_1, ..., X_T.

    The transforms are mirrored where X_{t-1} < 0: wrong modes would otherwise cancel out, as X is symmetric.
    Under the true distribution they are uniform whatever the past, hence independent; so are the scores of model1.
    """
    x = SYNTHETIC[name].sample(n_sequences, 24, generator=1).double()
    distribution = (distribution or SYNTHETIC[name]).predictive(x)
    transforms = distribution.cdf(x[:, 1:])
    mirrored = torch.where(x[:, :-1] < 0, 1 - transforms, transforms)
    return -distribution.log_prob(x[:, 1:]).numpy().ravel(), mirrored.numpy().ravel()


def test_negative_log_likelihood_of_model1_is_the_entropy_of_its_noise():
    scores, _ = predictive_scores("model1")
    entropy = 0.5 * math.log(2 * math.pi * math.e * 0.5)
    assert entropy == pytest.approx(1.0724, abs=1e-4)
    assert largest_z_score(scores, entropy) < 3


def test_probability_integral_transforms_are_uniform(name):
    _, transforms = predictive_scores(name)
    assert stats.kstest(transforms, "uniform").pvalue > 0.01


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("model1", MixtureAutoregression((0.8,), (1.0,), 0.45)),
        ("model2", MixtureAutoregression((0.9, 0.54), (0.3, 0.7), 0.3)),
        ("model3", MixtureAutoregression((0.9, -0.9), (0.55, 0.45), 0.05)),
        ("model3", MixtureAutoregression((0.0,), (1.0,), 0.3)),
    ],
    ids=["variance", "swapped probabilities", "probabilities", "one mode"],
)
def test_a_slightly_wrong_distribution_is_noticed(name, wrong):
    _, transforms = predictive_scores(name, wrong)
    assert stats.kstest(transforms, "uniform").pvalue < 1e-4


def distribution_errors(name, n_replicates=50, distribution=None):
    """dist-mse of independent draws from a predictive distribution on the same sequences, and E[X_t^2] over these."""
    x = SYNTHETIC[name].sample(200, 24, generator=2)
    samples = (distribution or SYNTHETIC[name]).predictive(x).sample(n_replicates, torch.Generator().manual_seed(3))
    errors = [SYNTHETIC[name].distribution_mse(samples[:, [i]], x) for i in range(n_replicates)]
    return np.array(errors), x[:, :-1].square().mean().item()


def test_distribution_mse_of_the_truth_for_model1_is_its_variance():
    errors, _ = distribution_errors("model1")
    assert largest_z_score(errors, 0.5) < 3


@pytest.mark.parametrize(("name", "variance", "slope"), [("model2", 0.30, 0.0544), ("model3", 0.05, 1.62)])
def test_distribution_mse_of_the_truth_has_twice_the_variance_of_the_coefficient(name, variance, slope):
    # Once as the sample's own coefficient differs from the mean, once as the coefficient compared with does.
    errors, second_moment = distribution_errors(name)
    first, second = coefficient_moments(name)
    assert 2 * (second - first**2) == pytest.approx(slope, abs=1e-4)
    assert largest_z_score(errors, variance + slope * second_moment) < 3


def test_distribution_mse_averages_over_all_samples():
    x = SYNTHETIC["model2"].sample(10, 5, generator=0)
    samples = torch.randn(10, 4, 5, 1, generator=torch.Generator().manual_seed(0))
    apart = [SYNTHETIC["model2"].distribution_mse(samples[:, [i]], x) for i in range(4)]
    assert SYNTHETIC["model2"].distribution_mse(samples, x) == pytest.approx(np.mean(apart), rel=1e-5)


def test_seeds_and_generators_determine_the_sequences(name):
    distribution = SYNTHETIC[name]
    first = distribution.sample(4, 6, generator=5)
    assert torch.equal(first, distribution.sample(4, 6, generator=5))
    assert torch.equal(first, distribution.sample(4, 6, generator=torch.Generator().manual_seed(5)))
    assert not torch.equal(first, distribution.sample(4, 6, generator=6))


def test_sampling_leaves_the_default_generator_alone():
    before = torch.get_rng_state()
    SYNTHETIC["model2"].sample(4, 6, generator=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_thousand_sequences_split_into_800_100_and_100():
    parts = split_sequences(SYNTHETIC["model1"].sample(generator=0))
    assert [len(part) for part in parts] == [800, 100, 100]


@pytest.mark.parametrize("n_sequences", [10, 37, 101])
def test_every_sequence_goes_to_one_part_in_order(n_sequences):
    x = SYNTHETIC["model1"].sample(n_sequences, 3, generator=0)
    assert torch.equal(torch.cat(split_sequences(x)), x)


def test_shares_can_be_chosen():
    parts = split_sequences(torch.zeros(20, 3, 1), shares=(0.5, 0.25))
    assert [len(part) for part in parts] == [10, 5, 5]
