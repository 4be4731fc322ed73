"""Every distribution learned from data that were drawn from it: its parameters are recovered, and its PIT is uniform.

Test sets are fresh and large, so that sampling alone would give a far smaller distance between the transforms and the
uniform distribution than `KS_BOUND` (`critical_distance` checks it); the rest is left to the error of a model that was
trained for some seconds.
"""

import math

import jaxtyping
import numpy as np
import pytest
import torch
from scipy import stats

from smc_transformer import SMCTransformer
from smc_transformer.learning import Trainer, negative_log_likelihood, warmup_cosine
from smc_transformer.nn.observation import ObservationModel
from smc_transformer.predictive import Components

pytestmark = pytest.mark.slow

KS_BOUND = 0.03
N_TRAIN, N_TEST, N_STEPS = 600, 400, 30
TEST_PARTICLES = 32
SMALL = {"d_model": 16, "d_ff": 32, "n_particles": 5, "window": 1, "initial_latent_variance": 0.01}


@pytest.fixture(scope="module", autouse=True)
def as_users_run_it():
    """The checks of shapes off, for the training in the module's fixtures too."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def draw(step, n_sequences, seed, n_targets=1, start=0.0):
    """Sequences X_0, ..., X_T of a Markov process that had ten steps to forget its start."""
    source = np.random.default_rng(seed)
    x = [np.full((n_sequences, n_targets), start)]
    for _ in range(N_STEPS + 10):
        x.append(step(x[-1], source))
    return torch.tensor(np.stack(x[10:], axis=1), dtype=torch.float32)


def small_model(own_observation=None, **settings):
    return SMCTransformer.from_settings(SMALL | settings, generator=0, observation=own_observation)


def train(model, x, *, epochs, batch_size=30, learning_rate=1e-2):
    n_steps = epochs * -(-len(x) // batch_size)
    trainer = Trainer(
        model,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule=warmup_cosine(n_steps, n_steps // 10),
        progress=False,
    )
    trainer.fit(x)
    return model


def predictive(model, test):
    return model.filter(test, TEST_PARTICLES, generator=1).predictive


def critical_distance(n):
    """What the Kolmogorov-Smirnov distance of n uniform numbers exceeds with probability 0.1 %."""
    return float(stats.kstwobign.isf(1e-3)) / math.sqrt(n)


def assert_calibrated(distribution, test):
    """For each target the transforms are uniform, after low and after high last values alike (if there are both)."""
    transforms, last = distribution.pit(test[:, 1:], generator=2).double(), test[:, :-1]
    for target in range(last.shape[-1]):
        low = last[..., target] <= last[..., target].median()
        for part in (low, ~low) if 0.35 < low.double().mean() < 0.65 else (low | ~low,):
            values = transforms[..., target][part].numpy()
            assert critical_distance(len(values)) < KS_BOUND
            assert stats.kstest(values, "uniform").statistic < KS_BOUND


# --- heteroscedastic ----------------------------------------------------------------------------------------

CORRELATION = 0.7


def true_scale(last):
    return 0.1 + 0.5 * abs(last)


def stormy(last, source):
    noise = source.multivariate_normal([0, 0], [[1, CORRELATION], [CORRELATION, 1]], size=len(last))
    return 0.5 * last + true_scale(last) * noise


@pytest.fixture(scope="module")
def heteroscedastic():
    x = draw(stormy, N_TRAIN, seed=0, n_targets=2, start=0.1)
    model = train(small_model(n_inputs=2, n_targets=2, observation="heteroscedastic"), x, epochs=12)
    return model, draw(stormy, N_TEST, seed=1, n_targets=2, start=0.1)


@pytest.mark.xdist_group("heteroscedastic")
def test_heteroscedastic_distribution_recovers_the_correlation_of_the_noise(heteroscedastic):
    model, _ = heteroscedastic
    # 18,000 steps tell r to (1 - r^2) / sqrt(n) = 0.004: four of these, and as much again for wrong means and scales.
    assert float(model.observation.correlation[0, 1]) == pytest.approx(CORRELATION, abs=0.03)


@pytest.mark.xdist_group("heteroscedastic")
def test_heteroscedastic_distribution_follows_the_scales(heteroscedastic):
    model, test = heteroscedastic
    distribution = predictive(model, test)
    found, true = distribution.variance.sqrt(), true_scale(test[:, :-1])
    for target in range(2):
        assert np.corrcoef(found[..., target].flatten(), true[..., target].flatten())[0, 1] > 0.9
        # A typical error of a tenth would cost 0.01 nats (its square), small beside what constant scales cost.
        assert float((found[..., target] / true[..., target]).log().abs().mean()) < 0.1


@pytest.mark.xdist_group("heteroscedastic")
def test_heteroscedastic_distribution_is_calibrated(heteroscedastic):
    model, test = heteroscedastic
    assert_calibrated(predictive(model, test), test)


# --- Student-t ----------------------------------------------------------------------------------------------


def heavy(last, source):
    return 0.7 * last + 0.5 * source.standard_t(4, size=last.shape)


@pytest.fixture(scope="module")
def student_t():
    x = draw(heavy, N_TRAIN, seed=0)
    models = {}
    for observation in ("gaussian", "student_t"):
        model = small_model(observation=observation, predict_change=True)
        models[observation] = train(model, x, epochs=12, batch_size=20, learning_rate=3e-2)
    return models, draw(heavy, N_TEST, seed=1)


@pytest.mark.xdist_group("student_t")
def test_student_t_distribution_recovers_the_degrees_of_freedom(student_t):
    # 18,000 steps tell nu = 4 to 0.15 or so; what the latents add to the noise makes tails look lighter.
    assert 3.0 < student_t[0]["student_t"].observation.degrees.item() < 6.5


@pytest.mark.xdist_group("student_t")
def test_student_t_distribution_predicts_heavy_tails_better_than_a_gaussian_one(student_t):
    models, test = student_t
    found = {
        name: negative_log_likelihood(model, test, n_particles=TEST_PARTICLES, generator=1)
        for name, model in models.items()
    }
    true = -stats.t.logpdf(test[:, 1:] - 0.7 * test[:, :-1], 4, scale=0.5).mean()
    # On the same test set, so that little noise is left in the differences. The best Gaussian is 0.084 worse than the
    # true distribution: log(2 pi e variance) / 2 = 1.072 with variance 0.5^2 * 2, less the entropy 0.989 of t_4 times
    # 0.5.
    assert found["student_t"] == pytest.approx(true, abs=0.01)
    assert found["student_t"] < found["gaussian"] - 0.06


@pytest.mark.xdist_group("student_t")
def test_student_t_distribution_is_calibrated(student_t):
    models, test = student_t
    assert_calibrated(predictive(models["student_t"], test), test)


# --- negative binomial --------------------------------------------------------------------------------------

DISPERSION = 0.3


def true_rate(last):
    return 2.0 + 0.6 * last


def counts(last, source):
    size = 1 / DISPERSION
    return source.negative_binomial(size, size / (size + true_rate(last))).astype(float)


@pytest.fixture(scope="module")
def negative_binomial():
    model = train(small_model(observation="negative_binomial"), draw(counts, N_TRAIN, seed=0), epochs=10)
    return model, draw(counts, N_TEST, seed=1)


@pytest.mark.xdist_group("negative_binomial")
def test_negative_binomial_distribution_recovers_mean_and_dispersion(negative_binomial):
    model, test = negative_binomial
    distribution, mean = predictive(model, test), true_rate(test[:, :-1])
    # A mean from 500 counts, as there are of a frequent last count, is good to sqrt((1/5 + 0.3) / 500) = 0.03; the net
    # shares counts between neighbours. The dispersion from 18,000 is good to 0.01; particles differ, which adds to it.
    # Here it is the dispersion that mean and variance of the mixture stand for.
    dispersion = (distribution.variance - distribution.mean) / distribution.mean.square()
    assert float((distribution.mean / mean - 1).abs().mean()) < 0.04
    assert float(dispersion.median()) == pytest.approx(DISPERSION, abs=0.04)


@pytest.mark.xdist_group("negative_binomial")
def test_negative_binomial_distribution_is_calibrated(negative_binomial):
    model, test = negative_binomial
    assert_calibrated(predictive(model, test), test)


# --- categorical --------------------------------------------------------------------------------------------

TRANSITIONS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.45, 0.5, 0.05]])


def chain(last, source):
    below = TRANSITIONS.cumsum(axis=1)[last[:, 0].astype(int)]
    return (source.random((len(last), 1)) > below[:, :2]).sum(axis=1, keepdims=True).astype(float)


@pytest.fixture(scope="module")
def categorical():
    model = train(small_model(observation="categorical", n_classes=3), draw(chain, N_TRAIN, seed=0), epochs=6)
    return model, draw(chain, N_TEST, seed=1)


@pytest.mark.xdist_group("categorical")
def test_categorical_distribution_recovers_the_transitions_of_a_chain(categorical):
    model, test = categorical
    # A row is seen at least 4,000 times, which tells a probability to 0.008: four of these, and some for the net.
    found, true = predictive(model, test).probabilities, torch.tensor(TRANSITIONS)[test[:, :-1, 0].long()]
    assert float((found - true).abs().max()) < 0.05


@pytest.mark.xdist_group("categorical")
def test_categorical_distribution_is_calibrated(categorical):
    model, test = categorical
    assert_calibrated(predictive(model, test), test)


# --- an observation model of one's own -----------------------------------------------------------------------


class LaplaceComponents(Components):
    def __init__(self, location, scale):
        self.location, self.scale = location, scale

    @property
    def mean(self):
        return self.location

    @property
    def variance(self):
        return 2 * self.scale.square()

    def log_prob(self, x, observed=None):
        log_prob = -(x - self.location).abs() / self.scale - (2 * self.scale).log()
        return (log_prob if observed is None else torch.where(observed, log_prob, 0.0)).sum(dim=-1)

    def cdf(self, x):
        standard = (x - self.location) / self.scale
        return 0.5 - 0.5 * standard.sign() * torch.expm1(-standard.abs())

    def sample(self, generator=None):
        uniform = torch.rand(self.location.shape, generator=generator, dtype=self.location.dtype) - 0.5
        return self.location - self.scale * uniform.sign() * torch.log1p(-2 * uniform.abs())

    def complete(self, x, observed, generator=None):
        return torch.where(observed, x, self.sample(generator))


class LaplaceObservation(ObservationModel):
    def __init__(self, n_targets):
        super().__init__(n_targets, n_parameters=2 * n_targets)

    def components(self, parameters):
        location, log_scale = parameters.split(self.n_targets, dim=-1)
        return LaplaceComponents(location, log_scale.exp())


def pointed(last, source):
    return 0.7 * last + source.laplace(scale=0.4, size=last.shape)


@pytest.fixture(scope="module")
def laplace():
    x = draw(pointed, N_TRAIN, seed=0)
    missing = torch.rand(x[:, 1:].shape, generator=torch.Generator().manual_seed(3)) < 0.1
    x[:, 1:][missing] = math.nan
    model = train(small_model(LaplaceObservation(1), predict_change=True), x, epochs=8)
    return model, draw(pointed, N_TEST, seed=1)


@pytest.mark.xdist_group("laplace")
def test_a_distribution_of_ones_own_is_learned_from_sequences_with_gaps(laplace):
    model, test = laplace
    found = negative_log_likelihood(model, test, n_particles=TEST_PARTICLES, generator=1)
    true = -stats.laplace.logpdf(test[:, 1:] - 0.7 * test[:, :-1], scale=0.4).mean()
    assert found == pytest.approx(true, abs=0.01)
    assert_calibrated(predictive(model, test), test)


@pytest.mark.xdist_group("laplace")
def test_a_distribution_of_ones_own_forecasts(laplace):
    model, test = laplace
    paths = model.forecast(test[:, :11], 10, n_samples=200, generator=1)
    lower, upper = paths.quantile(0.05, dim=1), paths.quantile(0.95, dim=1)
    inside = ((lower <= test[:, 11:21]) & (test[:, 11:21] <= upper)).double().mean()
    # 4,000 steps whose neighbours depend on each other (as 0.7^k: 6 times the variance) give an error of 0.012.
    assert float(inside) == pytest.approx(0.9, abs=0.04)


@pytest.mark.xdist_group("laplace")
def test_a_distribution_of_ones_own_bridges_gaps(laplace):
    model, test = laplace
    x = test.clone()
    x[:, 5:9] = math.nan
    result = model.filter(x, TEST_PARTICLES, generator=1)
    assert (result.log_increments[:, 4:8] == 0).all()
    assert torch.equal(result.completed[:, :, 9:], x[:, None, 10:].expand(-1, TEST_PARTICLES, -1, -1))
    lower, upper = result.predictive.interval(0.9)
    inside = ((lower <= test[:, 1:]) & (test[:, 1:] <= upper)).double().mean()
    # 12,000 steps, each independent of the others but in the gap: an error of 0.003, and some for the model.
    assert float(inside) == pytest.approx(0.9, abs=0.02)
    # The distribution of a step deep in a gap is wider than one that follows an observation.
    assert result.predictive.variance[:, 7].mean() > 1.3 * result.predictive.variance[:, 3].mean()


@pytest.mark.xdist_group("laplace")
def test_a_distribution_of_ones_own_gives_quantiles_and_scores(laplace):
    model, test = laplace
    distribution = predictive(model, test)
    np.testing.assert_allclose(distribution.cdf(distribution.quantile(0.3)), 0.3, atol=1e-5)
    # The CRPS is the expected score of the true distribution: 3/4 of the scale of a Laplace distribution.
    assert float(distribution.crps(test[:, 1:]).mean()) == pytest.approx(0.4 * 3 / 4, rel=0.04)
    assert distribution.sample(3, generator=1).shape == (N_TEST, 3, N_STEPS, 1)
