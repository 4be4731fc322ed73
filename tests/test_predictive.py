import math

import numpy as np
import pytest
import scoringrules
import torch
from scipy import integrate, stats

from smc_transformer.nn.observation import GaussianMixture
from smc_transformer.support.randomness import as_generator

LIMIT = 4.0
"""Standard errors allowed: a test compares up to a dozen numbers, each beyond 4 with probability 6e-5."""

LEVELS = (1e-4, 0.025, 0.3, 0.5, 0.9, 0.975, 1 - 1e-4)


def random_mixture(seed=0, *, batch=2, n_particles=5, n_steps=3, n_targets=2, dtype=torch.float64):
    """Unequal weights, means well apart, correlated targets."""
    generator = as_generator(seed)
    log_weights = torch.randn(batch, n_particles, n_steps, generator=generator, dtype=torch.float64)
    means = 2 * torch.randn(batch, n_particles, n_steps, n_targets, generator=generator, dtype=torch.float64)
    factor = torch.randn(n_targets, n_targets, generator=generator, dtype=torch.float64)
    covariance = factor @ factor.T + 0.2 * torch.eye(n_targets, dtype=torch.float64)
    return GaussianMixture(
        log_weights.log_softmax(dim=1).to(dtype), means.to(dtype), torch.linalg.cholesky(covariance).to(dtype)
    )


def one_target(weights, means, deviation, dtype=torch.float64):
    """A mixture for one sequence, one step and one target."""
    return GaussianMixture(
        torch.tensor(weights, dtype=dtype).log().view(1, -1, 1),
        torch.tensor(means, dtype=dtype).view(1, -1, 1, 1),
        torch.tensor([[deviation]], dtype=dtype),
    )


def at(value, mixture):
    """A value, or a list of them, in the shape of the targets of a one-target mixture."""
    return torch.tensor(value, dtype=mixture.components.mean.dtype).reshape(-1, 1, 1)


def covariance_of(mixture):
    """The covariance of the targets within every component."""
    root = mixture.components.root
    return root @ root.T


def exact_cdf(mixture, x):
    """The cdf of each target by scipy, in float64."""
    weights = mixture.log_weights.double().exp().unsqueeze(-1).numpy()
    deviations = covariance_of(mixture).double().diagonal().sqrt().numpy()
    components = stats.norm.cdf(x.double().unsqueeze(1).numpy(), mixture.components.mean.double().numpy(), deviations)
    return (weights * components).sum(axis=1)


BIMODAL = {"weights": [0.3, 0.7], "means": [-5.0, 5.0], "deviation": 0.1}
THREE_BUMPS = {"weights": [0.2, 0.5, 0.3], "means": [-2.0, 0.5, 4.0], "deviation": 0.6}


# --- cdf, quantiles, intervals ------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [-3.0, 0.0, 0.5, 3.9, 6.0])
def test_cdf_is_the_integral_of_the_density(x):
    mixture = one_target(**THREE_BUMPS)

    def density(y):
        return mixture.log_prob(at(y, mixture)).exp().item()

    bumps = [mean for mean in THREE_BUMPS["means"] if mean < x]
    expected, _ = integrate.quad(density, -10.0, x, points=bumps or None, epsabs=1e-10)
    assert mixture.cdf(at(x, mixture)).item() == pytest.approx(expected, abs=1e-8)


def test_cdf_of_each_target_is_that_of_its_margin():
    mixture = random_mixture()
    x = torch.randn(2, 3, 2, generator=as_generator(1), dtype=torch.float64)
    np.testing.assert_allclose(mixture.cdf(x), exact_cdf(mixture, x), rtol=1e-12)


# Bisection leaves an error of some units of rounding in x, and the cdf, a sum, one of some units itself.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
@pytest.mark.parametrize("p", LEVELS)
def test_quantile_inverts_the_cdf(p, dtype, tolerance):
    mixture = random_mixture(dtype=dtype)
    quantile = mixture.quantile(p)
    assert quantile.dtype == dtype
    np.testing.assert_allclose(exact_cdf(mixture, quantile), p, atol=tolerance, rtol=0)


# Even in its lower tail torch's normal cdf has the absolute error of numbers near 1: 6e-8 of 1e-4 in float32.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_quantiles_of_the_far_lower_tail_are_accurate_relative_to_it(dtype, tolerance):
    mixture = random_mixture(dtype=dtype)
    np.testing.assert_allclose(exact_cdf(mixture, mixture.quantile(1e-4)), 1e-4, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_quantiles_of_a_bimodal_distribution_lie_in_its_modes(dtype):
    # Below p = 0.3 all the mass is that of the left mode, so its quantile at p / 0.3 is the answer.
    mixture = one_target(**BIMODAL, dtype=dtype)
    tolerance = 20 * torch.finfo(dtype).eps
    left, right = mixture.quantile(0.15).item(), mixture.quantile(0.3 + 0.7 * 0.975).item()
    assert left == pytest.approx(-5.0, rel=tolerance)
    assert right == pytest.approx(5.0 + 0.1 * stats.norm.ppf(0.975), rel=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_quantile_at_the_gap_of_a_bimodal_distribution_lies_between_the_modes(dtype):
    assert -5.0 < one_target(**BIMODAL, dtype=dtype).quantile(0.3).item() < 5.0


def test_quantile_of_a_single_component_is_gaussian():
    mixture = one_target([1.0], [2.0], 3.0)
    assert mixture.quantile(0.975).item() == pytest.approx(stats.norm.ppf(0.975, 2.0, 3.0), rel=1e-12)


def test_quantile_ignores_components_without_weight():
    mixture = one_target([1.0, 0.0], [2.0, -1000.0], 3.0)
    assert mixture.quantile(0.01).item() == pytest.approx(stats.norm.ppf(0.01, 2.0, 3.0), rel=1e-10)


@pytest.mark.parametrize("levels", [[0.1, 0.5, 0.9], (0.1, 0.5, 0.9), np.array([0.1, 0.5, 0.9])], ids=type)
def test_several_quantiles_become_a_first_axis(levels, without_shape_checks):
    mixture = random_mixture()
    quantiles = mixture.quantile(levels)
    assert quantiles.shape == (3, 2, 3, 2)
    for quantile, level in zip(quantiles, levels, strict=True):
        assert torch.equal(quantile, mixture.quantile(float(level)))


def test_quantiles_increase_with_the_level():
    assert (random_mixture(dtype=torch.float32).quantile(LEVELS).diff(dim=0) > 0).all()


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_interval_is_central_and_holds_its_level(level):
    mixture = random_mixture()
    lower, upper = mixture.interval(level)
    np.testing.assert_allclose(exact_cdf(mixture, lower), (1 - level) / 2, rtol=1e-10)
    np.testing.assert_allclose(exact_cdf(mixture, upper), (1 + level) / 2, rtol=1e-10)


def test_interval_holds_its_level_of_the_samples():
    mixture = random_mixture()
    n_samples, level = 20_000, 0.9
    samples = mixture.sample(n_samples, as_generator(0))
    lower, upper = (end.unsqueeze(1) for end in mixture.interval(level))
    held = ((samples >= lower) & (samples <= upper)).double().mean(dim=1)
    # A share of n independent draws has a standard error of sqrt(p (1 - p) / n).
    assert ((held - level).abs() < LIMIT * math.sqrt(level * (1 - level) / n_samples)).all()


def test_interval_of_a_bimodal_distribution_is_not_the_gaussian_one():
    mixture = one_target(**BIMODAL)
    lower, upper = (end.item() for end in mixture.interval(0.95))
    mean, deviation = mixture.mean.item(), mixture.variance.sqrt().item()
    held = (mixture.cdf(at(upper, mixture)) - mixture.cdf(at(lower, mixture))).item()
    assert held == pytest.approx(0.95, abs=1e-10)
    # The modes are narrow, so the interval ends within them: the Gaussian rule misses by several units.
    assert -5.3 < lower < -4.7
    assert 4.7 < upper < 5.3
    assert mean - 1.96 * deviation < lower - 1
    assert mean + 1.96 * deviation > upper + 1


# --- density ------------------------------------------------------------------------------------------------


def test_log_prob_is_that_of_a_mixture_of_correlated_gaussians():
    mixture = random_mixture(n_targets=3)
    x = torch.randn(2, 3, 3, generator=as_generator(1), dtype=torch.float64)
    log_prob = mixture.log_prob(x)
    assert log_prob.shape == (2, 3)
    for row in range(2):
        for step in range(3):
            density = sum(
                mixture.log_weights[row, particle, step].exp().item()
                * stats.multivariate_normal.pdf(
                    x[row, step].numpy(),
                    mixture.components.mean[row, particle, step].numpy(),
                    covariance_of(mixture).numpy(),
                )
                for particle in range(5)
            )
            assert log_prob[row, step].item() == pytest.approx(math.log(density), rel=1e-10)


def test_log_prob_does_not_underflow_far_away():
    mixture = one_target(**THREE_BUMPS)
    expected = math.log(0.3) + stats.norm.logpdf(104.0, 4.0, 0.6)
    assert mixture.log_prob(at(104.0, mixture)).item() == pytest.approx(expected, rel=1e-12)


def test_log_prob_and_cdf_take_many_values_for_each_step():
    mixture = random_mixture()
    x = torch.randn(4, 2, 3, 2, generator=as_generator(1), dtype=torch.float64)
    torch.testing.assert_close(mixture.log_prob(x), torch.stack([mixture.log_prob(each) for each in x]))
    torch.testing.assert_close(mixture.cdf(x), torch.stack([mixture.cdf(each) for each in x]))


# --- moments ------------------------------------------------------------------------------------------------


def test_mean_and_variance_agree_with_their_formulas():
    mixture = random_mixture()
    weights = mixture.log_weights.exp().numpy()[..., None]
    means = mixture.components.mean.numpy()
    mean = (weights * means).sum(axis=1)
    second_moment = (weights * (means**2 + covariance_of(mixture).diagonal().numpy())).sum(axis=1)
    np.testing.assert_allclose(mixture.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(mixture.variance, second_moment - mean**2, rtol=1e-10)


def test_variance_parts_are_the_spread_of_the_means_and_the_noise():
    mixture = random_mixture()
    weights = mixture.log_weights.exp().numpy()[..., None]
    means = mixture.components.mean.numpy()
    parts = mixture.variance_parts()
    spread = (weights * means**2).sum(axis=1) - (weights * means).sum(axis=1) ** 2
    np.testing.assert_allclose(parts.between, spread, rtol=1e-10)
    np.testing.assert_allclose(parts.within, np.broadcast_to(covariance_of(mixture).diagonal(), (2, 3, 2)), rtol=1e-12)
    torch.testing.assert_close(parts.between + parts.within, mixture.variance)


def test_equal_means_leave_no_variance_between_particles():
    parts = one_target([0.3, 0.7], [1.5, 1.5], 2.0).variance_parts()
    assert parts.between.item() == pytest.approx(0.0, abs=1e-15)
    assert parts.within.item() == pytest.approx(4.0)


def test_variance_in_float32_survives_means_far_from_zero():
    mixture = one_target([0.5, 0.5], [9_999.0, 10_001.0], 1.0, dtype=torch.float32)
    assert mixture.variance.item() == pytest.approx(2.0, rel=1e-5)


# --- samples ------------------------------------------------------------------------------------------------


def test_samples_have_an_axis_of_their_own():
    samples = random_mixture(batch=2, n_steps=3, n_targets=4).sample(7, as_generator(0))
    assert samples.shape == (2, 7, 3, 4)


def test_sample_moments_are_those_of_the_distribution():
    mixture = random_mixture()
    n_samples = 20_000
    samples = mixture.sample(n_samples, as_generator(0))
    squares = (samples - mixture.mean.unsqueeze(1)).square()
    # The mean of n independent numbers has a standard error of their standard deviation over sqrt(n).
    mean_error = samples.std(dim=1) / math.sqrt(n_samples)
    variance_error = squares.std(dim=1) / math.sqrt(n_samples)
    assert ((samples.mean(dim=1) - mixture.mean).abs() < LIMIT * mean_error).all()
    assert ((squares.mean(dim=1) - mixture.variance).abs() < LIMIT * variance_error).all()


def test_samples_of_several_targets_belong_together():
    # Noise correlated at -0.9 within components, whose means rise together: both must show.
    covariance = torch.tensor([[1.0, -1.8], [-1.8, 4.0]], dtype=torch.float64)
    means = torch.tensor([[-3.0, -3.0], [0.0, 0.0], [3.0, 3.0]], dtype=torch.float64).view(1, 3, 1, 2)
    weights = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)
    n_samples = 20_000
    samples = GaussianMixture(weights.log().view(1, 3, 1), means, torch.linalg.cholesky(covariance)).sample(
        n_samples, as_generator(0)
    )
    products = samples[0, :, 0].prod(dim=-1)
    between, within = 4.5, -1.8
    error = products.std() / math.sqrt(n_samples)
    assert abs(products.mean() - (between + within)) < LIMIT * error
    assert abs(between + within) > 2 * LIMIT * error  # independent targets would be noticed
    assert abs(within) > 2 * LIMIT * error  # and so would independent noise


def test_samples_follow_the_distribution_of_each_target():
    mixture = random_mixture(batch=1, n_steps=1)
    samples = mixture.sample(5_000, as_generator(0))
    transform = exact_cdf(mixture, samples[0])[:, 0]
    for target in range(2):
        assert stats.kstest(transform[:, target], "uniform").pvalue > 0.01


def test_steps_are_sampled_independently():
    mixture = GaussianMixture(
        torch.full((1, 2, 2), 0.5).log(),
        torch.tensor([-5.0, 5.0]).view(1, 2, 1, 1).expand(1, 2, 2, 1),
        torch.eye(1),
    )
    n_samples = 5_000
    first, second = mixture.sample(n_samples, as_generator(0))[0, :, :, 0].T
    # The correlation of independent numbers has a standard error of 1 / sqrt(n).
    assert abs(np.corrcoef(first, second)[0, 1]) < LIMIT / math.sqrt(n_samples)


def test_the_generator_determines_the_samples():
    mixture = random_mixture()
    first, again, other = (mixture.sample(5, as_generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# --- CRPS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", [THREE_BUMPS, BIMODAL], ids=["three bumps", "bimodal"])
@pytest.mark.parametrize("x", [-5.0, 0.2, 4.0, 9.0])
def test_crps_is_the_integral_of_the_squared_difference_of_the_cdfs(distribution, x):
    mixture = one_target(**distribution)

    def cdf(y):
        return exact_cdf(mixture, at(y, mixture)).item()

    points = distribution["means"]
    below, _ = integrate.quad(lambda y: cdf(y) ** 2, -12.0, x, points=[m for m in points if m < x] or None, limit=200)
    above, _ = integrate.quad(
        lambda y: (cdf(y) - 1) ** 2, x, 12.0, points=[m for m in points if m > x] or None, limit=200
    )
    assert mixture.crps(at(x, mixture)).item() == pytest.approx(below + above, rel=1e-6)


# Without weights scoringrules mixes its components equally; with them, as they are.
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "unequal"])
def test_crps_agrees_with_scoringrules(equal):
    mixture = random_mixture(n_particles=6)
    if equal:
        mixture = GaussianMixture(
            torch.full_like(mixture.log_weights, -math.log(6)), mixture.components.mean, mixture.components.root
        )
    x = torch.randn(2, 3, 2, generator=as_generator(1), dtype=torch.float64)
    means = mixture.components.mean.movedim(1, -1).numpy()
    weights = mixture.weights.expand_as(mixture.components.mean).movedim(1, -1).numpy()
    deviations = np.broadcast_to(covariance_of(mixture).diagonal().sqrt().numpy()[:, None], means.shape)
    expected = scoringrules.crps_mixnorm(x.numpy(), means, deviations, None if equal else weights, backend="numpy")
    np.testing.assert_allclose(mixture.crps(x), expected, rtol=1e-10)


def test_crps_in_float32_agrees_with_float64():
    x = torch.randn(2, 3, 2, generator=as_generator(1), dtype=torch.float64)
    single, double = random_mixture(dtype=torch.float32), random_mixture(dtype=torch.float64)
    np.testing.assert_allclose(single.crps(x.float()), double.crps(x), rtol=1e-4)


@pytest.mark.parametrize("n_particles", [250, 600])
def test_crps_of_many_particles_is_that_of_each_step_alone(n_particles):
    """So many pairs are not handled at once: a few steps, or one, at a time."""
    mixture = random_mixture(n_particles=n_particles)
    x = torch.randn(2, 3, 2, generator=as_generator(1), dtype=torch.float64)
    found = mixture.crps(x)
    for b, t in np.ndindex(2, 3):
        place = slice(b, b + 1), slice(None), slice(t, t + 1)
        alone = GaussianMixture(mixture.log_weights[place], mixture.components.mean[place], mixture.components.root)
        expected = alone.crps(x[b : b + 1, t : t + 1])
        torch.testing.assert_close(found[b : b + 1, t : t + 1], expected, rtol=1e-13, atol=0)


# --- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0, 1, 0.0, 1.0, -0.1, 1.5, math.nan, [0.5, 1.0]], ids=str)
def test_quantile_rejects_what_is_not_a_probability_inside_zero_and_one(p, without_shape_checks):
    with pytest.raises(ValueError, match=r"strictly between 0 and 1, got (0\.0|1\.0|-0\.1|1\.5|nan)$"):
        random_mixture().quantile(p)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95.0, math.nan])
def test_interval_rejects_what_is_not_a_level_inside_zero_and_one(level):
    with pytest.raises(ValueError, match=f"level strictly between 0 and 1, got {level}$"):
        random_mixture().interval(level)
