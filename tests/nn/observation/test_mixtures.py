"""The predictive distribution of weighted particles for every observation model, against brute force."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from smc_transformer.nn.observation import (
    CategoricalMixture,
    CategoricalObservation,
    GaussianObservation,
    HeteroscedasticObservation,
    NegativeBinomialObservation,
    StudentTObservation,
)
from smc_transformer.support.randomness import as_generator

LIMIT = 4.5
"""Standard errors allowed: a test compares up to some dozens of numbers, each beyond 4.5 with probability 7e-6."""

BATCH, N_PARTICLES, N_STEPS = 2, 4, 2
LEVELS = (1e-3, 0.05, 0.3, 0.5, 0.9, 0.999)
COUNTS = np.arange(4000)
"""Enough whole numbers to hold all but a negligible rest of the distributions below."""


def correlated(n_targets):
    return torch.eye(n_targets, dtype=torch.float64) * 0.4 + 0.6


def make_distribution(name):
    if name == "gaussian":
        distribution = GaussianObservation(2).double()
        distribution.covariance.assign_(torch.tensor([[0.5, 0.4], [0.4, 0.9]], dtype=torch.float64))
    elif name == "categorical":
        distribution = CategoricalObservation(5).double()
    elif name == "negative_binomial":
        distribution = NegativeBinomialObservation(2).double()
    else:
        distribution = {"heteroscedastic": HeteroscedasticObservation, "student_t": StudentTObservation}[name](
            2
        ).double()
        distribution.correlation.copy_(correlated(2))
        distribution.requires_grad_(False)
    return distribution


def random_mixture(name, seed=0, batch=BATCH, n_steps=N_STEPS, copies=1):
    """Unequal weights, components well apart; every row so many times."""
    distribution, generator = make_distribution(name), as_generator(seed)
    log_weights = torch.randn(batch, N_PARTICLES, n_steps, generator=generator, dtype=torch.float64).log_softmax(dim=1)
    shape = (batch, N_PARTICLES, n_steps, distribution.n_parameters)
    parameters = torch.randn(shape, generator=generator, dtype=torch.float64)
    if name != "negative_binomial":
        parameters[..., : distribution.n_targets] *= 2
    with torch.no_grad():
        return distribution.mixture(*(part.repeat_interleave(copies, dim=0) for part in (log_weights, parameters)))


OBSERVATIONS = ("gaussian", "heteroscedastic", "student_t", "negative_binomial", "categorical")
CONTINUOUS, DISCRETE = OBSERVATIONS[:3], OBSERVATIONS[3:]


@pytest.fixture(params=OBSERVATIONS)
def mixture(request):
    return random_mixture(request.param)


def margin(mixture, row, particle, step, target):
    """One target of one component, as scipy has it."""
    parts, place = mixture.components, (row, particle, step)
    if isinstance(mixture, CategoricalMixture):
        return stats.rv_discrete(values=(range(5), parts.probabilities[place].numpy()))
    if hasattr(parts, "dispersion"):
        size = 1 / parts.dispersion[(*place, target)].item()
        return stats.nbinom(size, size / (size + parts.mean[(*place, target)].item()))
    scale = parts.scale.expand_as(parts.mean)[(*place, target)].item()
    scale *= (parts.root @ parts.root.T)[target, target].sqrt().item()
    if hasattr(parts, "degrees"):
        return stats.t(float(parts.degrees), parts.location[(*place, target)].item(), scale)
    return stats.norm(parts.mean[(*place, target)].item(), scale)


class Margin:
    """One target of the mixture, by scipy."""

    def __init__(self, mixture, row, step, target):
        self.weights = mixture.log_weights[row, :, step].exp().tolist()
        self.parts = [margin(mixture, row, particle, step, target) for particle in range(N_PARTICLES)]

    def average(self, function):
        return sum(weight * function(part) for weight, part in zip(self.weights, self.parts, strict=True))

    def cdf(self, x):
        return self.average(lambda part: part.cdf(x))

    def pmf(self, x):
        return self.average(lambda part: part.pmf(x))


def margins(mixture):
    """Every place (row, step, target) and the distribution there."""
    _, n_steps, n_targets = mixture.mean.shape
    for place in np.ndindex(len(mixture.mean), n_steps, n_targets):
        yield place, Margin(mixture, *place)


def some_values(mixture, seed=3):
    """Values that the distribution could have: one sample."""
    return mixture.sample(1, seed).squeeze(1)


# --- cdf and quantiles --------------------------------------------------------------------------------------


def test_cdf_is_that_of_the_mixed_margins(mixture):
    x = some_values(mixture)
    found = mixture.cdf(x)
    for place, distribution in margins(mixture):
        assert found[place].item() == pytest.approx(distribution.cdf(x[place].item()), rel=1e-9)


def test_mean_and_variance_are_those_of_the_mixed_margins(mixture):
    for place, distribution in margins(mixture):
        mean = distribution.average(lambda part: part.mean())
        second_moment = distribution.average(lambda part: part.var() + part.mean() ** 2)
        assert mixture.mean[place].item() == pytest.approx(mean, rel=1e-9)
        assert mixture.variance[place].item() == pytest.approx(second_moment - mean**2, rel=1e-8)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles_of_a_continuous_distribution_invert_the_cdf(name):
    mixture = random_mixture(name)
    for p, quantile in zip(LEVELS, mixture.quantile(LEVELS), strict=True):
        np.testing.assert_allclose(mixture.cdf(quantile), p, rtol=1e-9)


@pytest.mark.parametrize("name", DISCRETE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_quantiles_of_a_discrete_distribution_are_the_least_numbers_that_hold_their_level(name, dtype):
    exact = random_mixture(name)
    mixture = type(exact)(
        exact.log_weights.to(dtype), exact.parameters.to(dtype), make_distribution(name).to(dtype).components
    )
    quantiles = mixture.quantile(LEVELS)
    for place, distribution in margins(exact):
        below = distribution.cdf(COUNTS)
        for level, quantile in zip(LEVELS, quantiles, strict=True):
            assert quantile[place].item() == np.argmax(below >= level)


@pytest.mark.parametrize("name", DISCRETE)
def test_quantiles_of_a_discrete_distribution_are_right_next_to_a_jump_of_the_cdf(name):
    mixture = random_mixture(name, batch=1, n_steps=1)
    distribution = Margin(mixture, 0, 0, 0)
    for count in range(4):
        below = float(distribution.cdf(count))
        for level, expected in ((below - 1e-9, count), (below + 1e-9, count + 1)):
            assert mixture.quantile(level)[0, 0, 0].item() == expected


def test_interval_has_the_quantiles_of_its_tails(mixture):
    lower, upper = mixture.interval(0.8)
    torch.testing.assert_close(torch.stack([lower, upper]), mixture.quantile([0.1, 0.9]))
    if mixture.components.discrete:
        held = mixture.cdf(upper) - mixture.cdf(lower - 1)
        assert (held >= 0.8 - 1e-12).all()
    else:
        np.testing.assert_allclose(mixture.cdf(upper) - mixture.cdf(lower), 0.8, rtol=1e-9)


@pytest.mark.parametrize("name", DISCRETE)
def test_quantiles_of_a_distribution_that_is_sure_are_its_only_number(name):
    distribution = make_distribution(name)
    parameters = torch.full((1, 1, 1, distribution.n_parameters), -20.0, dtype=torch.float64)
    if name == "categorical":
        parameters[..., 3] = 2000.0
    mixture = distribution.mixture(torch.zeros(1, 1, 1, dtype=torch.float64), parameters)
    expected = 3.0 if name == "categorical" else 0.0
    assert (mixture.quantile([0.01, 0.5, 0.99]) == expected).all()


# --- density ------------------------------------------------------------------------------------------------


def exact_log_prob(mixture, row, step, x):
    """Joint log density of the observed targets, by scipy."""
    seen = np.flatnonzero(~np.isnan(x))
    parts, terms = mixture.components, []
    for particle in range(N_PARTICLES):
        place = (row, particle, step)
        if parts.discrete:
            terms.append(sum(margin(mixture, *place, target).logpmf(x[target]) for target in seen))
            continue
        scale = parts.scale.expand_as(parts.mean)[place].numpy()
        matrix = (scale[:, None] * (parts.root @ parts.root.T).numpy() * scale)[np.ix_(seen, seen)]
        location = parts.mean[place].numpy()[seen]
        if hasattr(parts, "degrees"):
            terms.append(stats.multivariate_t.logpdf(x[seen], location, matrix, df=float(parts.degrees)))
        else:
            terms.append(stats.multivariate_normal.logpdf(x[seen], location, matrix))
    return np.logaddexp.reduce(np.array(terms) + mixture.log_weights[row, :, step].numpy())


@pytest.mark.parametrize("missing", [[], [(0, 0, 0)], [(0, 0, 1), (1, 1, 0)]], ids=["all", "one", "two"])
def test_log_prob_is_the_marginal_density_of_what_is_not_missing(mixture, missing):
    x = some_values(mixture)
    n_targets = x.shape[-1]
    for row, step, target in missing:
        if n_targets > 1:
            x[row, step, target] = math.nan
    found = mixture.log_prob(x)
    for row, step in np.ndindex(BATCH, N_STEPS):
        assert found[row, step].item() == pytest.approx(
            exact_log_prob(mixture, row, step, x[row, step].numpy()), rel=1e-7
        )


def test_log_prob_of_a_step_that_is_missing_is_zero(mixture):
    x = some_values(mixture)
    x[0, 1] = math.nan
    log_prob = mixture.log_prob(x)
    assert log_prob[0, 1].item() == pytest.approx(0.0, abs=1e-8)
    assert (log_prob.flatten()[[0, 2, 3]] != 0).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_probabilities_sum_to_one(name):
    mixture = random_mixture(name, batch=1, n_steps=1)
    total, n_targets = 0.0, mixture.mean.shape[-1]
    for count in range(5 if name == "categorical" else 500):
        x = torch.full((1, 1, n_targets), math.nan, dtype=torch.float64)
        x[..., 0] = count
        total += mixture.log_prob(x).exp().item()
    assert total == pytest.approx(1.0, abs=1e-6)


def test_probabilities_of_the_classes_are_mixed_by_weight():
    mixture = random_mixture("categorical")
    expected = np.zeros((BATCH, N_STEPS, 5))
    for particle in range(N_PARTICLES):
        weights = mixture.log_weights[:, particle].exp().numpy()[..., None]
        expected += weights * mixture.parameters[:, particle].softmax(dim=-1).numpy()
    np.testing.assert_allclose(mixture.probabilities, expected, rtol=1e-12)
    for each in range(5):
        x = torch.full((BATCH, N_STEPS, 1), float(each), dtype=torch.float64)
        np.testing.assert_allclose(mixture.log_prob(x).exp(), expected[..., each], rtol=1e-10)


# --- CRPS ---------------------------------------------------------------------------------------------------


# The Gaussian distributions have closed forms; for a t distribution the integral of F (1 - F) is cut at 200 deviations.
@pytest.mark.parametrize(("name", "tolerance"), [("gaussian", 1e-7), ("heteroscedastic", 1e-7), ("student_t", 1e-4)])
def test_crps_of_a_continuous_distribution_is_the_integral_of_the_squared_difference_of_the_cdfs(name, tolerance):
    mixture = random_mixture(name)
    x = some_values(mixture)
    found = mixture.crps(x)
    for place, distribution in margins(mixture):
        value = x[place].item()
        centres = [part.mean() for part in distribution.parts]
        edges = sorted({*centres, value, value - 200, value + 200})
        expected = 0.0
        for lower, upper in pairwise(edges):
            expected += integrate.quad(
                lambda y, distribution=distribution, value=value: (distribution.cdf(y) - (y >= value)) ** 2,
                lower,
                upper,
                epsabs=1e-10,
                limit=200,
            )[0]
        assert found[place].item() == pytest.approx(expected, rel=tolerance)


def test_crps_of_counts_is_the_sum_of_the_squared_differences_of_the_cdfs():
    mixture = random_mixture("negative_binomial")
    x = some_values(mixture)
    found = mixture.crps(x)
    for place, distribution in margins(mixture):
        expected = ((distribution.cdf(COUNTS) - (x[place].item() <= COUNTS)) ** 2).sum()
        # The distribution's own sum stops where a millionth of the probability is left.
        assert found[place].item() == pytest.approx(expected, abs=1e-4)


def test_crps_of_classes_is_half_the_brier_score():
    # By hand: probabilities (0.2, 0.3, 0.5) and class 2 give ((0.2)^2 + (0.3)^2 + (0.5 - 1)^2) / 2 = 0.19.
    distribution = CategoricalObservation(3).double()
    logits = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log().view(1, 1, 1, 3)
    mixture = distribution.mixture(torch.zeros(1, 1, 1, dtype=torch.float64), logits)
    scores = [mixture.crps(torch.tensor([[[each]]], dtype=torch.float64)).item() for each in (0.0, 1.0, 2.0)]
    assert scores == pytest.approx([0.49, 0.39, 0.19])


def test_crps_of_mixed_classes_is_half_the_brier_score_of_their_mixed_probabilities():
    mixture = random_mixture("categorical")
    x = some_values(mixture)
    hit = torch.nn.functional.one_hot(x[..., 0].long(), 5)
    torch.testing.assert_close(mixture.crps(x)[..., 0], (mixture.probabilities - hit).square().sum(dim=-1) / 2)


@pytest.mark.parametrize("name", CONTINUOUS + DISCRETE)
def test_crps_is_the_mean_distance_less_half_the_mean_distance_of_two_draws(name):
    mixture = random_mixture(name)
    x = some_values(mixture)
    n_samples = 20_000
    first, second = mixture.sample(n_samples, 1), mixture.sample(n_samples, 2)

    def distance(a, b):
        return (a != b).double() if name == "categorical" else (a - b).abs()

    scores = distance(first, x.unsqueeze(1)) - distance(first, second) / 2
    error = scores.std(dim=1) / math.sqrt(n_samples)
    assert ((scores.mean(dim=1) - mixture.crps(x)).abs() < LIMIT * error).all()


# --- samples and transforms ---------------------------------------------------------------------------------

N_SAMPLES = 4000


def own_samples(name, seed=0):
    """A mixture with many copies of its rows, and one draw from each: (row, copy, step, target) when unflattened."""
    mixture = random_mixture(name, seed, copies=N_SAMPLES)
    return mixture, some_values(mixture)


def uniformity(transforms):
    """The p-values of a test for each row, step and target."""
    assert ((transforms >= 0) & (transforms <= 1)).all()
    columns = transforms.unflatten(0, (BATCH, N_SAMPLES)).transpose(0, 1).flatten(1).T.numpy()
    return np.array([stats.kstest(column, "uniform").pvalue for column in columns])


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_transforms_of_samples_are_uniform(name):
    mixture, samples = own_samples(name)
    assert uniformity(mixture.pit(samples, generator=2)).min() > 1e-3


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_transforms_of_a_wrong_distribution_are_not_uniform(name):
    _, samples = own_samples(name)
    assert uniformity(random_mixture(name, seed=1, copies=N_SAMPLES).pit(samples, generator=2)).max() < 1e-6


@pytest.mark.parametrize("name", DISCRETE)
def test_the_cdf_of_whole_numbers_is_not_uniform_so_that_the_transform_must_be_drawn(name):
    mixture, samples = own_samples(name)
    assert uniformity(mixture.cdf(samples)).max() < 1e-6


@pytest.mark.parametrize("name", DISCRETE)
def test_the_generator_determines_the_transforms(name):
    mixture = random_mixture(name)
    x = some_values(mixture)
    assert torch.equal(mixture.pit(x, 1), mixture.pit(x, as_generator(1)))
    assert not torch.equal(mixture.pit(x, 1), mixture.pit(x, 2))


def test_sample_moments_are_those_of_the_mixture(mixture):
    n_samples = 20_000
    samples = mixture.sample(n_samples, 1)
    squares = (samples - mixture.mean.unsqueeze(1)).square()
    assert ((samples.mean(dim=1) - mixture.mean).abs() < LIMIT * samples.std(dim=1) / math.sqrt(n_samples)).all()
    assert ((squares.mean(dim=1) - mixture.variance).abs() < LIMIT * squares.std(dim=1) / math.sqrt(n_samples)).all()


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_samples_follow_the_joint_density(name):
    # -log p of the samples has the mean it has for draws by hand: components by weight, and targets that belong
    # together.
    mixture, samples = own_samples(name)
    generator = as_generator(5)
    weights = mixture.log_weights.exp().transpose(1, 2).flatten(0, 1)
    chosen = torch.multinomial(weights, 1, generator=generator).view(len(samples), N_STEPS)
    index = chosen[:, None, :, None].expand(-1, 1, -1, mixture.parameters.shape[-1])
    by_hand = mixture.components_of(mixture.parameters.gather(1, index).squeeze(1)).sample(generator)
    scores = [mixture.log_prob(draws).unflatten(0, (BATCH, N_SAMPLES)) for draws in (samples, by_hand)]
    error = (scores[0].var(dim=1) / N_SAMPLES + scores[1].var(dim=1) / N_SAMPLES).sqrt()
    assert ((scores[0].mean(dim=1) - scores[1].mean(dim=1)).abs() < LIMIT * error).all()


# --- missing values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_scores_of_missing_values_are_missing(name):
    mixture = random_mixture(name)
    x = some_values(mixture)
    x[0, 1] = math.nan
    for score in (mixture.cdf, mixture.crps, lambda x: mixture.pit(x, 1)):
        assert torch.equal(score(x).isnan(), x.isnan())


# --- results outlive the training that made them -------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "heteroscedastic", "student_t"])
def test_a_mixture_does_not_change_when_its_distribution_learns_on(name):
    distribution = make_distribution(name)
    parameters = torch.randn(1, 3, 2, distribution.n_parameters, generator=as_generator(0), dtype=torch.float64)
    log_weights = torch.full((1, 3, 2), -math.log(3), dtype=torch.float64)
    with torch.no_grad():
        mixture = distribution.mixture(log_weights, parameters)
        before = mixture.sample(50, 1), mixture.interval(0.9)[0]
        moment = torch.tensor([[9.0, -5.0], [-5.0, 4.0]], dtype=torch.float64)
        statistics = (
            moment
            if name == "gaussian"
            else distribution.statistics(
                torch.randn(1, 1, 2, 2, generator=as_generator(1), dtype=torch.float64),
                parameters,
                log_weights[..., 0].exp(),
            )
        )
        distribution.em_step_(statistics, 1.0)
        distribution.eval()
        after = mixture.sample(50, 1), mixture.interval(0.9)[0]
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old, new)


def test_score_of_large_counts_is_the_sum_over_all_counts():
    """Several thousand: too many for the library to sum one by one."""
    distribution = NegativeBinomialObservation(n_targets=1)
    parameters = torch.tensor([[[8.0, -2.0]], [[8.5, -1.0]]], dtype=torch.float64).unsqueeze(0)  # means 2981 and 4915
    log_weights = torch.full((1, 2, 1), 0.5, dtype=torch.float64).log()
    counts = torch.arange(100_000, dtype=torch.float64).view(1, -1, 1)
    n_counts = counts.shape[1]
    everywhere = distribution.mixture(log_weights.expand(-1, -1, n_counts), parameters.expand(-1, -1, n_counts, -1))
    below = everywhere.cdf(counts)
    assert below[0, -1] > 1 - 1e-6
    for x in (1500.0, 3600.0):
        exact = (below - (counts >= x).double()).square().sum()
        found = distribution.mixture(log_weights, parameters).crps(torch.full((1, 1, 1), x, dtype=torch.float64))
        # Nodes are some counts apart, so the steps of the cdf are seen to a fraction of a count in some 700.
        torch.testing.assert_close(found.squeeze(), exact, rtol=1e-3, atol=0)


@pytest.mark.parametrize("ratio", [1.0, 300.0, 3000.0])
def test_score_is_right_when_one_component_is_much_wider_than_the_others(ratio):
    from smc_transformer.nn.observation import StudentTObservation

    distribution = StudentTObservation(1, degrees=3.0).double()
    parameters = torch.tensor([[0.0, 0.0], [0.0, math.log(ratio)]], dtype=torch.float64).view(1, 2, 1, 2)
    weights = torch.tensor([0.99, 0.01], dtype=torch.float64)
    mixture = distribution.mixture(weights.log().view(1, 2, 1), parameters)

    def below(x):
        return 0.99 * stats.t.cdf(x, 3) + 0.01 * stats.t.cdf(x / ratio, 3)

    # Symmetric about x = 0: the score is twice the integral of F^2 over the left half, piece by piece.
    edges = [0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6]
    exact = 2 * sum(integrate.quad(lambda x: below(-x) ** 2, low, high)[0] for low, high in pairwise(edges))
    found = mixture.crps(torch.zeros(1, 1, 1, dtype=torch.float64)).item()
    assert found == pytest.approx(exact, rel=2e-3)


def test_score_of_a_count_does_not_depend_on_its_neighbours():
    from smc_transformer.nn.observation import NegativeBinomialObservation

    distribution = NegativeBinomialObservation(1)
    small, large = torch.tensor([0.5, -2.0]), torch.tensor([9.0, 0.0])
    both = torch.stack((small, large)).double().view(2, 1, 1, 2)
    log_weights = torch.zeros(2, 1, 1).double()
    x = torch.tensor([1.0, 5000.0]).double().view(2, 1, 1)
    alone = distribution.mixture(log_weights[:1], both[:1]).crps(x[:1])
    torch.testing.assert_close(distribution.mixture(log_weights, both).crps(x)[:1], alone)
