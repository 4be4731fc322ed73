"""Scores of hand-made predictive distributions with known answers."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, optimize
from scipy.stats import multivariate_normal, norm

from smc_transformer.empirical import Point, Samples
from smc_transformer.nn.observation.gaussian import GaussianMixture
from smc_transformer.scores import covered, interval_score, joined, one_step_scores, sample_interval, target_scores


def one_gaussian(means, variance):
    """A single component with these means (batch, time, target), and independent targets."""
    batch, n_steps, n_targets = means.shape
    root = math.sqrt(variance) * torch.eye(n_targets, dtype=means.dtype)
    return GaussianMixture(torch.zeros(batch, 1, n_steps, dtype=means.dtype), means.unsqueeze(1), root)


def gaussian_crps(x, mean, deviation):
    """The closed form of Gneiting and Raftery (2007)."""
    z = (x - mean) / deviation
    return deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


def test_scores_of_a_gaussian_are_the_closed_forms():
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    observed = mean + 1.5 * torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    scores = one_step_scores(one_gaussian(mean, variance=0.49), observed, level=0.9)

    error = (observed - mean).numpy()
    reach = norm.ppf(0.95) * 0.7
    assert scores.mse == pytest.approx(np.mean(error**2))
    assert scores.picp == pytest.approx(np.mean(np.abs(error) <= reach))
    assert 0 < scores.picp < 1
    assert scores.mpiw == pytest.approx(2 * reach)
    assert scores.crps == pytest.approx(gaussian_crps(observed.numpy(), mean.numpy(), 0.7).mean())
    assert scores.nll == pytest.approx(-norm.logpdf(error, scale=0.7).sum(axis=-1).mean())  # joint over the targets


def test_the_likelihood_of_correlated_targets_is_the_joint_one():
    covariance = np.array([[1.0, 0.8], [0.8, 2.0]])
    means, observed = torch.zeros(1, 1, 1, 2).double(), torch.tensor([[[0.5, -1.0]]]).double()
    root = torch.linalg.cholesky(torch.from_numpy(covariance))
    scores = one_step_scores(GaussianMixture(torch.zeros(1, 1, 1).double(), means, root), observed)
    assert scores.nll == pytest.approx(-multivariate_normal.logpdf([0.5, -1.0], cov=covariance))


WEIGHTS, MEANS, DEVIATION = np.array([0.3, 0.7]), np.array([-2.0, 1.0]), 0.5


def two_bumps():
    return GaussianMixture(
        torch.from_numpy(WEIGHTS).log().view(1, 2, 1),
        torch.from_numpy(MEANS).view(1, 2, 1, 1),
        torch.tensor([[DEVIATION]], dtype=torch.float64),
    )


def two_bumps_cdf(x):
    return WEIGHTS @ norm.cdf(x, MEANS, DEVIATION)


@pytest.mark.parametrize("value", [-2.4, -0.6, 0.0, 1.1, 4.0])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_scores_of_two_bumps_are_those_of_scipy(value, level):
    scores = one_step_scores(two_bumps(), torch.full((1, 1, 1), value).double(), level)
    ends = [optimize.brentq(lambda x, p=p: two_bumps_cdf(x) - p, -9, 9) for p in ((1 - level) / 2, (1 + level) / 2)]
    below = integrate.quad(lambda x: two_bumps_cdf(x) ** 2, -12, value, epsabs=1e-10, limit=200)[0]
    above = integrate.quad(lambda x: (1 - two_bumps_cdf(x)) ** 2, value, 12, epsabs=1e-10, limit=200)[0]
    assert scores.mse == pytest.approx((0.1 - value) ** 2)  # the mean is 0.3 * -2 + 0.7 * 1
    assert scores.picp == (ends[0] <= value <= ends[1])
    assert scores.mpiw == pytest.approx(ends[1] - ends[0])
    assert scores.crps == pytest.approx(below + above, abs=1e-7)
    assert scores.nll == pytest.approx(-math.log(WEIGHTS @ norm.pdf(value, MEANS, DEVIATION)))


def test_scores_are_averages_over_sequences_and_steps():
    mean = torch.tensor([[[0.0], [1.0]], [[2.0], [3.0]]]).double()
    observed = mean + torch.tensor([[[0.0], [1.0]], [[2.0], [5.0]]]).double()
    scores = one_step_scores(one_gaussian(mean, variance=1.0), observed)
    assert scores.mse == pytest.approx((0 + 1 + 4 + 25) / 4)
    assert scores.picp == 0.5  # 0 and 1 lie within 1.96, 2 and 5 do not
    assert scores.mpiw == pytest.approx(2 * norm.ppf(0.975))
    assert scores.nll == pytest.approx(-np.mean(norm.logpdf([0, 1, 2, 5])))


def test_coverage_of_calibrated_forecasts_is_the_level():
    mean = torch.zeros(1, 10_000, 1).double()
    observed = torch.randn(1, 10_000, 1, generator=torch.Generator().manual_seed(0)).double()
    picp = one_step_scores(one_gaussian(mean, variance=1.0), observed, level=0.8).picp
    assert picp == pytest.approx(0.8, abs=4 * math.sqrt(0.8 * 0.2 / 10_000))


def test_covered_counts_both_ends():
    lower, upper = torch.zeros(1, 5, 1), torch.ones(1, 5, 1)
    observed = torch.tensor([-0.1, 0.0, 0.5, 1.0, 1.1]).view(1, 5, 1)
    assert covered((lower, upper), observed).flatten().tolist() == [False, True, True, True, False]


def test_covered_looks_at_every_target_alone():
    lower, upper = torch.tensor([[[0.0, 10.0]]]), torch.tensor([[[1.0, 11.0]]])
    assert covered((lower, upper), torch.tensor([[[0.5, 0.5]]])).tolist() == [[[True, False]]]


def test_sample_interval_is_that_of_numpy():
    paths = torch.randn(2, 500, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lower, upper = sample_interval(paths, level=0.8)
    expected = np.quantile(paths.numpy(), [0.1, 0.9], axis=1)
    np.testing.assert_allclose(lower.numpy(), expected[0])
    np.testing.assert_allclose(upper.numpy(), expected[1])


def test_sample_interval_of_evenly_spaced_paths_is_known():
    paths = torch.linspace(0, 100, 101).view(1, 101, 1, 1)
    lower, upper = sample_interval(paths, level=0.9)
    assert (lower.item(), upper.item()) == pytest.approx((5, 95), abs=1e-4)


def test_missing_values_are_not_scored():
    """The scores of what is observed, whether the rest is missing or was never there."""
    from smc_transformer.nn.observation import GaussianMixture

    mixture = GaussianMixture(
        torch.full((1, 2, 3), 0.5).double().log(), torch.randn(1, 2, 3, 2).double(), torch.eye(2).double()
    )
    observed = torch.randn(1, 3, 2).double()
    gappy = observed.clone()
    gappy[:, 1] = float("nan")
    kept = GaussianMixture(mixture.log_weights[:, :, ::2], mixture.components.mean[:, :, ::2], torch.eye(2).double())
    expected = one_step_scores(kept, observed[:, ::2])
    assert one_step_scores(mixture, gappy) == pytest.approx(expected)


# --- scores of each target ------------------------------------------------------------------------------------------


def draws_and_truth():
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(3, 40, 4, 2, generator=generator, dtype=torch.float64)
    observed = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    observed[0, 1, 0] = observed[2] = float("nan")
    return draws, observed


def test_scores_of_each_target_are_those_of_the_distribution_and_nan_where_nothing_was_observed():
    draws, observed = draws_and_truth()
    distribution = Samples(draws)
    interval = distribution.interval(0.8)
    expected = {
        "mse": (draws.mean(dim=1) - observed).square(),
        "crps": distribution.crps(observed),
        "pit": distribution.cdf(observed),
        "picp": covered(interval, observed).double(),
        "mpiw": interval[1] - interval[0],
        "winkler": interval_score(interval, observed, 0.8),
    }
    found = target_scores(distribution, observed, 0.8)
    assert found.keys() == expected.keys()
    seen = ~observed.isnan()
    for name, values in found.items():
        assert torch.equal(values[seen], expected[name][seen]), name
        assert values[~seen].isnan().all(), name


def test_a_point_has_errors_only():
    _, observed = draws_and_truth()
    found = target_scores(Point(torch.zeros(3, 4, 2, dtype=torch.float64)), observed)
    assert found.keys() == {"mse", "crps"}
    torch.testing.assert_close(found["crps"], observed.abs(), equal_nan=True)


def test_scores_of_parts_joined_are_those_of_the_whole():
    draws, observed = draws_and_truth()
    whole = target_scores(Samples(draws), observed)
    parts = [target_scores(Samples(draws[part]), observed[part]) for part in (slice(0, 1), slice(1, 3))]
    for name, values in joined(parts).items():
        torch.testing.assert_close(values, whole[name], equal_nan=True)


def test_averages_are_taken_in_double_precision():
    assert joined([{"mse": torch.ones(2, 1, 1)}])["mse"].dtype == torch.float64
