"""The distributions of one particle, against scipy: densities, margins, cdfs, moments, draws, draws given a part."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from smc_transformer.nn.observation.categorical import CategoricalComponents
from smc_transformer.nn.observation.gaussian import GaussianComponents
from smc_transformer.nn.observation.negative_binomial import NegativeBinomialComponents
from smc_transformer.nn.observation.student_t import StudentTComponents
from smc_transformer.support.randomness import as_generator

LIMIT = 4.5
"""Standard errors allowed: a test compares up to some dozens of numbers, each beyond 4.5 with probability 7e-6."""

N_DRAWS = 20_000

COVARIANCE = torch.tensor([[1.5, 0.6, -0.4], [0.6, 0.8, 0.1], [-0.4, 0.1, 0.5]], dtype=torch.float64)
"""A common matrix whose diagonal is not one: an observation model must not take it for a correlation."""

CORRELATION = torch.tensor([[1.0, 0.7, -0.3], [0.7, 1.0, 0.2], [-0.3, 0.2, 1.0]], dtype=torch.float64)
DEGREES = 5.0
JITTER = 1e-7
"""Masked matrices carry a jitter of 1e-9 relative to their size, which their inverses enlarge."""


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=as_generator(seed), dtype=torch.float64)


class Case:
    """Components of one distribution with n rows, and what scipy says of them."""

    discrete = False
    n_targets = 3

    def __init__(self, n_rows=6, *, copies=1):
        """Random rows, or with `copies` each of them so many times (for draws)."""
        self.n_rows = n_rows
        self.components = self.make(lambda parameter: parameter.repeat_interleave(copies, dim=0))

    def exact_log_prob(self, row, x, coordinates):
        """The joint log density of some coordinates."""
        raise NotImplementedError

    def margin(self, row, target):
        """The frozen scipy distribution of one target."""
        raise NotImplementedError

    def margins(self):
        return [[self.margin(row, target) for target in range(self.n_targets)] for row in range(self.n_rows)]

    def values(self, seed=5):
        return self.location + 1.5 * numbers(self.n_rows, 3, seed=seed)


class Gaussian(Case):
    matrix, scaled = COVARIANCE, False

    def make(self, copy):
        self.location = 2 * numbers(self.n_rows, 3)
        self.scale = numbers(self.n_rows, 3, seed=1).exp() if self.scaled else torch.ones(self.n_rows, 3)
        root = torch.linalg.cholesky(self.matrix)
        return GaussianComponents(copy(self.location), root, copy(self.scale) if self.scaled else None)

    def shape_matrix(self, row):
        scale = self.scale[row].double()
        return (scale.unsqueeze(-1) * self.matrix * scale).numpy()

    def exact_log_prob(self, row, x, coordinates):
        matrix = self.shape_matrix(row)[np.ix_(coordinates, coordinates)]
        return stats.multivariate_normal.logpdf(x[coordinates], self.location[row].numpy()[coordinates], matrix)

    def margin(self, row, target):
        return stats.norm(float(self.location[row, target]), math.sqrt(self.shape_matrix(row)[target, target]))


class ScaledGaussian(Gaussian):
    matrix, scaled = CORRELATION, True


class ScaledGaussianOfAnyMatrix(Gaussian):
    scaled = True


class StudentT(Gaussian):
    matrix, scaled = CORRELATION, True

    def make(self, copy):
        super().make(copy)
        root = torch.linalg.cholesky(self.matrix)
        return StudentTComponents(
            copy(self.location), root, copy(self.scale), torch.tensor(DEGREES, dtype=torch.float64)
        )

    def exact_log_prob(self, row, x, coordinates):
        matrix = self.shape_matrix(row)[np.ix_(coordinates, coordinates)]
        return stats.multivariate_t.logpdf(x[coordinates], self.location[row].numpy()[coordinates], matrix, df=DEGREES)

    def margin(self, row, target):
        return stats.t(DEGREES, float(self.location[row, target]), math.sqrt(self.shape_matrix(row)[target, target]))


class NegativeBinomial(Case):
    discrete = True

    def make(self, copy):
        self.mean, self.dispersion = (1.0 + numbers(self.n_rows, 3)).exp(), (numbers(self.n_rows, 3, seed=1) - 1).exp()
        return NegativeBinomialComponents(copy(self.mean), copy(self.dispersion))

    def margin(self, row, target):
        size = 1 / float(self.dispersion[row, target])
        return stats.nbinom(size, size / (size + float(self.mean[row, target])))

    def exact_log_prob(self, row, x, coordinates):
        return sum(self.margin(row, target).logpmf(x[target]) for target in coordinates)

    def values(self, seed=5):
        return (self.mean * (1 + numbers(self.n_rows, 3, seed=seed)).abs()).round()


class Categorical(Case):
    discrete, n_targets = True, 1

    def make(self, copy):
        self.logits = numbers(self.n_rows, 4)
        return CategoricalComponents(copy(self.logits))

    def margin(self, row, target):
        weights = np.exp(self.logits[row].numpy())
        return stats.rv_discrete(values=(range(4), weights / weights.sum()))

    def exact_log_prob(self, row, x, coordinates):
        return sum(self.margin(row, target).logpmf(x[target]) for target in coordinates)

    def values(self, seed=5):
        return torch.randint(4, (self.n_rows, 1), generator=as_generator(seed)).double()


CASES = (Gaussian, ScaledGaussian, ScaledGaussianOfAnyMatrix, StudentT, NegativeBinomial, Categorical)


@pytest.fixture(params=CASES, ids=lambda case: case.__name__)
def distribution(request):
    return request.param


def every_mask(n_targets, n_rows):
    """Masks that differ from row to row, all kinds among enough rows."""
    kinds = [[bool(number >> bit & 1) for bit in range(n_targets)] for number in range(2**n_targets)]
    return torch.tensor([kinds[row % len(kinds)] for row in range(n_rows)])


# --- density ------------------------------------------------------------------------------------------------


def test_log_prob_is_that_of_scipy(distribution):
    case = distribution()
    x = case.values()
    everything = list(range(case.n_targets))
    expected = [case.exact_log_prob(row, x[row].numpy(), everything) for row in range(case.n_rows)]
    np.testing.assert_allclose(case.components.log_prob(x), expected, rtol=1e-9, atol=1e-12)


def test_log_prob_of_a_part_is_that_of_its_margin(distribution):
    case = distribution(n_rows=16)
    observed = every_mask(case.n_targets, 16)
    x = torch.where(observed, case.values(), math.nan)
    expected = [
        case.exact_log_prob(row, x[row].numpy(), np.flatnonzero(observed[row])) if observed[row].any() else 0.0
        for row in range(16)
    ]
    np.testing.assert_allclose(case.components.log_prob(x, observed), expected, rtol=JITTER, atol=JITTER)


def test_log_prob_with_all_observed_is_that_without_a_mask(distribution):
    case = distribution()
    x = case.values()
    torch.testing.assert_close(
        case.components.log_prob(x, torch.ones_like(x, dtype=torch.bool)),
        case.components.log_prob(x),
        rtol=JITTER,
        atol=JITTER,
    )


def test_log_prob_of_nothing_is_zero(distribution):
    case = distribution()
    x = torch.full((case.n_rows, case.n_targets), math.nan, dtype=torch.float64)
    assert (case.components.log_prob(x, torch.zeros_like(x, dtype=torch.bool)).abs() < JITTER).all()


def test_log_prob_compares_one_row_with_all_components(distribution):
    case = distribution()
    x = case.values()[:1]
    observed = torch.ones_like(x, dtype=torch.bool)
    observed[0, 0] = case.n_targets == 1
    for mask in (None, observed):
        everywhere = None if mask is None else mask.expand(case.n_rows, -1)
        torch.testing.assert_close(
            case.components.log_prob(x, mask), case.components.log_prob(x.expand(case.n_rows, -1), everywhere)
        )


def test_log_prob_of_targets_of_very_different_sizes_is_that_of_the_margin():
    # Deviations 1000 and 0.01, as of raw data in different units: neither may disturb the other.
    covariance = torch.diag(torch.tensor([1e6, 1e-4], dtype=torch.float64))
    components = GaussianComponents(torch.zeros(1, 2, dtype=torch.float64), covariance.sqrt())
    found = components.log_prob(
        torch.tensor([[math.nan, 0.02]], dtype=torch.float64), torch.tensor([[False, True]])
    ).item()
    assert found == pytest.approx(stats.norm.logpdf(0.02, scale=0.01), rel=1e-6)


# At e^-15, the least that the distribution allows, the counts are Poisson; a float32 in nats must be good to some 1e-3.
@pytest.mark.parametrize("log_dispersion", [-2.0, -6.0, -10.0, -15.0])
def test_log_prob_of_counts_in_float32_survives_small_dispersions(log_dispersion):
    count = torch.arange(12.0).unsqueeze(-1)
    dispersion = torch.tensor([log_dispersion]).exp()
    found = NegativeBinomialComponents(torch.tensor([3.0]), dispersion).log_prob(count)
    size = 1 / dispersion.double().item()
    expected = stats.nbinom.logpmf(np.arange(12), size, size / (size + 3.0))
    np.testing.assert_allclose(found, expected, atol=1e-3)


# --- cdf, moments, errors -----------------------------------------------------------------------------------


def test_cdf_is_that_of_scipy(distribution):
    case = distribution()
    for x in (case.values(5), case.values(6) + (0.5 if case.discrete else 0.0)):
        expected = [
            [m.cdf(float(value)) for m, value in zip(*row, strict=True)] for row in zip(case.margins(), x, strict=True)
        ]
        np.testing.assert_allclose(case.components.cdf(x), expected, rtol=1e-9, atol=1e-14)


def test_cdf_of_counts_and_classes_is_zero_below_zero():
    for distribution in (NegativeBinomial, Categorical):
        case = distribution()
        assert (case.components.cdf(torch.full((case.n_rows, case.n_targets), -1.0, dtype=torch.float64)) == 0).all()


def test_cdf_of_a_gaussian_is_accurate_far_out_in_float32():
    components = GaussianComponents(torch.zeros(1, 1), torch.eye(1), torch.full((1, 1), 2.0))
    assert components.cdf(torch.tensor([[-12.0]])).item() == pytest.approx(stats.norm.cdf(-6.0), rel=1e-4)


def test_mean_and_variance_are_those_of_scipy(distribution):
    case = distribution()
    for name, found in (("mean", case.components.mean), ("var", case.components.variance)):
        expected = [[getattr(margin, name)() for margin in row] for row in case.margins()]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


# --- draws --------------------------------------------------------------------------------------------------


def test_samples_have_the_moments_of_the_distribution(distribution):
    case = distribution(n_rows=3, copies=N_DRAWS)
    samples = case.components.sample(as_generator(0)).view(3, N_DRAWS, case.n_targets)
    mean = samples.mean(dim=1)
    squares = (samples - mean.unsqueeze(1)).square()
    exact_mean = torch.tensor([[margin.mean() for margin in row] for row in case.margins()])
    exact_variance = torch.tensor([[margin.var() for margin in row] for row in case.margins()])
    assert ((mean - exact_mean).abs() < LIMIT * samples.std(dim=1) / math.sqrt(N_DRAWS)).all()
    # Squares of a t with 5 degrees have a variance but hardly more: their mean is far from Gaussian yet.
    room = 2 * LIMIT if distribution is StudentT else LIMIT
    assert ((squares.mean(dim=1) - exact_variance).abs() < room * squares.std(dim=1) / math.sqrt(N_DRAWS)).all()


@pytest.mark.parametrize("distribution", [Gaussian, ScaledGaussian, StudentT], indirect=True)
def test_samples_follow_the_margins_into_the_tails(distribution):
    case = distribution(n_rows=2, copies=N_DRAWS)
    samples = case.components.sample(as_generator(0)).view(2, N_DRAWS, 3).numpy()
    for row, margins in enumerate(case.margins()):
        for target, margin in enumerate(margins):
            transforms = margin.cdf(samples[row, :, target])
            assert stats.kstest(transforms, "uniform").pvalue > 1e-3
            tail = np.mean(np.minimum(transforms, 1 - transforms) < 0.001)
            assert abs(tail - 0.002) < LIMIT * math.sqrt(0.002 / N_DRAWS)


@pytest.mark.parametrize("distribution", [NegativeBinomial, Categorical], indirect=True)
def test_samples_have_the_probabilities_of_scipy(distribution):
    case = distribution(n_rows=3, copies=N_DRAWS)
    samples = case.components.sample(as_generator(0)).view(3, N_DRAWS, case.n_targets)
    for row, margins in enumerate(case.margins()):
        for target, margin in enumerate(margins):
            for value in range(4):
                expected = float(margin.pmf(value))
                share = (samples[row, :, target] == value).double().mean().item()
                assert abs(share - expected) < LIMIT * math.sqrt(expected * (1 - expected) / N_DRAWS)


@pytest.mark.parametrize("distribution", [Gaussian, ScaledGaussian, StudentT], indirect=True)
def test_samples_of_the_targets_belong_together(distribution):
    case = distribution(n_rows=1, copies=N_DRAWS)
    standard = (case.components.sample(as_generator(0)) - case.location) / case.scale
    # Signs do not care for the tails: P(both of one sign) = 1/2 + asin(r) / pi for every elliptical distribution.
    deviation = case.matrix.diagonal().sqrt()
    correlation = case.matrix / (deviation.unsqueeze(-1) * deviation)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        agree = (standard[:, first] * standard[:, second] > 0).double().mean().item()
        expected = 0.5 + math.asin(correlation[first, second]) / math.pi
        assert abs(agree - expected) < LIMIT * math.sqrt(expected * (1 - expected) / N_DRAWS)


def test_student_t_samples_share_one_precision():
    # Given that one target is far out, the others are too, even without correlation.
    components = StudentTComponents(
        torch.zeros(N_DRAWS, 2, dtype=torch.float64),
        torch.eye(2, dtype=torch.float64),
        torch.ones(N_DRAWS, 2, dtype=torch.float64),
        torch.tensor(DEGREES, dtype=torch.float64),
    )
    samples = components.sample(as_generator(0))
    norms = samples.square().sum(dim=-1).numpy()
    # |T|^2 / 2 of a bivariate t is an F variable with (2, nu) degrees; were precisions apart, it would be lighter.
    assert stats.kstest(norms / 2, stats.f(2, DEGREES).cdf).pvalue > 1e-3


# --- draws given a part -------------------------------------------------------------------------------------


def completed(case, observed, x, seed=0):
    """Draws of every row given the observed part of x, (row, draw, target)."""
    copies = len(case.components.mean) // case.n_rows
    rows = (part.repeat_interleave(copies, dim=0) for part in (torch.where(observed, x, math.nan), observed))
    return case.components.complete(*rows, as_generator(seed)).view(case.n_rows, copies, case.n_targets)


def test_completion_leaves_what_was_observed(distribution):
    case = distribution(n_rows=16)
    observed, x = every_mask(case.n_targets, 16), case.values()
    filled = completed(case, observed, x).squeeze(1)
    assert torch.equal(filled[observed], x[observed])
    assert filled.isfinite().all()


def test_completion_of_nothing_has_the_distribution_of_samples(distribution):
    case = distribution(n_rows=1, copies=2000)
    observed = torch.zeros(1, case.n_targets, dtype=torch.bool)
    filled = completed(case, observed, case.values())[0]
    sampled = case.components.sample(as_generator(1))
    for target in range(case.n_targets):
        assert stats.ks_2samp(filled[:, target], sampled[:, target]).pvalue > 1e-3


def test_completion_of_one_row_goes_to_all_components(distribution):
    case = distribution()
    x, observed = case.values()[:1], torch.zeros(1, case.n_targets, dtype=torch.bool)
    observed[0, -1] = case.n_targets > 1
    filled = case.components.complete(torch.where(observed, x, math.nan), observed, as_generator(0))
    assert filled.shape == (case.n_rows, case.n_targets)
    torch.testing.assert_close(
        filled, completed(case, observed.expand(case.n_rows, -1), x.expand(case.n_rows, -1))[:, 0]
    )


PARTS = [[True, False, False], [False, True, True], [True, False, True]]


def conditional(case, row, x, seen, unseen):
    """Location and matrix of the unseen targets given the seen ones, and the squared norm of these."""
    matrix, location = case.shape_matrix(row), case.location[row].numpy()
    gain = np.linalg.solve(matrix[np.ix_(seen, seen)], matrix[np.ix_(seen, unseen)]).T
    residual = x[row].numpy()[seen] - location[seen]
    schur = matrix[np.ix_(unseen, unseen)] - gain @ matrix[np.ix_(seen, unseen)]
    return location[unseen] + gain @ residual, schur, residual @ np.linalg.solve(matrix[np.ix_(seen, seen)], residual)


@pytest.mark.parametrize("distribution", [Gaussian, ScaledGaussian, StudentT], indirect=True)
def test_completion_has_the_conditional_distribution(distribution):
    # Each row with another part observed. For a t distribution the rest is a t distribution again, with more degrees,
    # and wider where what was observed is far out.
    case = distribution(n_rows=3, copies=N_DRAWS)
    observed, x = torch.tensor(PARTS), case.values()
    x = case.location + 3 * (x - case.location)
    filled = completed(case, observed, x).numpy()
    for row in range(3):
        seen, unseen = np.flatnonzero(observed[row]), np.flatnonzero(~observed[row])
        location, matrix, squared_norm = conditional(case, row, x, seen, unseen)
        degrees = np.inf
        if distribution is StudentT:
            degrees = DEGREES + len(seen)
            matrix = matrix * (DEGREES + squared_norm) / degrees
        draws = filled[row][:, unseen] - location
        variance = matrix * (1 if degrees == np.inf else degrees / (degrees - 2))
        for i in range(len(unseen)):
            error = draws[:, i].std() / math.sqrt(N_DRAWS)
            assert abs(draws[:, i].mean()) < LIMIT * error
            # A t with infinitely many degrees is a Gaussian.
            assert stats.kstest(draws[:, i] / math.sqrt(matrix[i, i]), stats.t(degrees).cdf).pvalue > 1e-3
            for j in range(len(unseen)):
                products = draws[:, i] * draws[:, j]
                assert abs(products.mean() - variance[i, j]) < LIMIT * products.std() / math.sqrt(N_DRAWS)


@pytest.mark.parametrize("distribution", [NegativeBinomial, Categorical], indirect=True)
def test_completion_of_independent_targets_has_the_distribution_of_samples(distribution):
    case = distribution(n_rows=1, copies=N_DRAWS)
    observed = torch.tensor([[True, False, False][: case.n_targets]]) & (case.n_targets > 1)
    filled = completed(case, observed, case.values())[0]
    for target in np.flatnonzero(~observed[0]):
        margin = case.margin(0, target)
        assert abs(filled[:, target].mean() - margin.mean()) < LIMIT * margin.std() / math.sqrt(N_DRAWS)


def test_the_generator_determines_samples_and_completions(distribution):
    case = distribution(n_rows=16)
    observed, x = every_mask(case.n_targets, 16), case.values()
    for draw in (case.components.sample, lambda generator: case.components.complete(x, observed, generator)):
        first, again, other = (draw(as_generator(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_a_generator_leaves_the_default_one_alone(distribution):
    case = distribution()
    before = torch.get_rng_state()
    case.components.sample(as_generator(1))
    case.components.complete(case.values(), every_mask(case.n_targets, case.n_rows), as_generator(1))
    assert torch.equal(torch.get_rng_state(), before)
