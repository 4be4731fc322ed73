"""Proposals: whatever z is drawn from, likelihood, gradients, statistics and predictions keep their meaning."""

import functools
import math

import numpy as np
import pytest
import scipy.stats
import torch
from helpers.given_noise import filter_under, stream_under
from helpers.gradients import assert_gradients_match, exact_gradient
from helpers.models import (
    TINY_SEQUENCE,
    gappy_model,
    gappy_sequence,
    linear_model,
    make_model,
    mean_and_error,
    sequences,
    simulate,
    tiny_model,
)
from helpers.oracles import linear_gaussian, masked_linear, quadrature
from helpers.second_moments import assert_statistics_are_posterior_moments
from helpers.user_modules import MisjudgedObservation, give_observation

from smc_transformer import InferenceSettings, kernels
from smc_transformer.inference.proposals import PROPOSALS, guided
from smc_transformer.inference.proposals.guided import Linearised
from smc_transformer.smc import WeightCollapseError, gather_trajectories
from smc_transformer.support.randomness import as_generator

NAN = float("nan")
NAMES = ("bootstrap", "guided", "auxiliary")
KNOWING = ("guided", "auxiliary")
"""The proposals that know X_t."""
SETTINGS = [{}, {"ess_threshold": 0.5, "resampling": "multinomial"}]


def settings_id(settings):
    return "-".join(str(value) for value in settings.values()) or "default"


def test_the_settings_know_all_proposals():
    assert set(PROPOSALS) == set(NAMES)
    with pytest.raises(ValueError, match="proposal must be one of"):
        InferenceSettings(proposal="clairvoyant")


# --- unbiased likelihoods -----------------------------------------------------------------------------------------


def log_likelihood_of(model, x, result):
    return result.log_likelihood


def assert_unbiased(model, x, exact, *, n_runs=10_000, n_particles=5, seed=0, estimate=log_likelihood_of):
    """The mean of the estimated over the exact likelihood is 1, within 4 standard errors of at most 3 %."""
    x = x.expand(n_runs, -1, -1)
    log_likelihood = estimate(model, x, model.filter(x, n_particles, generator=seed))
    ratio, error = mean_and_error(torch.exp(log_likelihood - exact))
    assert error < 0.03 * ratio, f"too noisy to prove anything: {error:.3f}"
    assert abs(ratio - 1) < 4 * error + 1e-9, f"biased: {ratio:.4f} +- {error:.4f}"


@functools.cache
def exact_tiny(window):
    return quadrature.exact(tiny_model(window=window), TINY_SEQUENCE).log_likelihood.item()


def window_one_log_likelihood(model, x, n_nodes=31):
    """Window 1: z(t) given X_{t-1} is Gaussian, and p(X_t | z) is summed over a grid of it.

    An even grid, as the layer norms are not smooth enough for Gauss-Hermite. One sequence (1, time + 1, n_inputs).
    """
    config, attention = model.config, model.attention
    nodes = torch.linspace(-5.5, 5.5, n_nodes, dtype=x.dtype)
    grid = torch.cartesian_prod(*[nodes] * config.d_model)
    log_mass = -0.5 * grid.square().sum(dim=-1)
    log_mass = log_mass - log_mass.logsumexp(dim=0)
    output = attention.output.weight
    covariance = output @ attention.value_covariance.matrix() @ output.T + attention.attention_covariance.matrix()
    deviation = grid @ torch.linalg.cholesky(covariance).T
    total = 0.0
    with torch.no_grad():
        for t in range(1, x.shape[1]):
            embedding = x[0, t - 1] @ model.encoder.projection.weight.T + model.encoder.projection.bias
            z = embedding @ attention.value.weight.T @ output.T + deviation
            parameters = model.read_out(z, embedding.expand_as(z), x[0, t - 1, : config.n_targets].expand(len(z), -1))
            log_density = model.observation.components(parameters).log_prob(x[0, t, : config.n_targets].unsqueeze(0))
            total += torch.logsumexp(log_mass + log_density, dim=0).item()
    return total


def transformer_model(**settings):
    """Window 1, a transformer's read-out of two targets, little enough noise for X_t to be informative."""
    defaults = {"n_inputs": 2, "n_targets": 2, "d_model": 3, "d_ff": 4, "window": 1, "covariance": "full"}
    variances = {"initial_latent_variance": 0.2, "initial_observation_variance": 0.05}
    model = make_model(**{**defaults, **variances, **settings})
    with torch.no_grad():  # away from 0, where a layer norm jumps
        model.encoder.projection.bias.add_(torch.tensor([1.5, 0.0, -1.5]))
    return model


@functools.cache
def transformer_case(observation):
    """A sequence of the model's own, and its exact likelihood."""
    model = transformer_model(observation=observation)
    x = simulate(model, 1, 3, seed=1)
    return x, window_one_log_likelihood(model, x)


@pytest.mark.parametrize("settings", SETTINGS, ids=settings_id)
@pytest.mark.parametrize("name", NAMES)
def test_likelihood_is_unbiased_for_the_linear_model(name, settings):
    model, x = linear_model(proposal=name, **settings), sequences(1, 4, 3)
    assert_unbiased(model, x, linear_gaussian.log_likelihood(model, x).item())


@pytest.mark.parametrize("settings", SETTINGS, ids=settings_id)
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("name", NAMES)
def test_likelihood_is_unbiased_with_memory(name, window, settings):
    assert_unbiased(tiny_model(proposal=name, window=window, **settings), TINY_SEQUENCE, exact_tiny(window))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("observation", ["gaussian", "heteroscedastic", "student_t"])
def test_likelihood_is_unbiased_where_the_read_out_is_not_linear(name, observation):
    model = transformer_model(proposal=name, observation=observation)
    assert_unbiased(model, *transformer_case(observation), n_runs=5000, n_particles=10)


def test_the_grid_of_z_has_converged_and_gives_the_closed_form_of_a_linear_model():
    for observation in ("gaussian", "heteroscedastic", "student_t"):
        x, exact = transformer_case(observation)
        assert abs(window_one_log_likelihood(transformer_model(observation=observation), x, 41) - exact) < 1e-4
    linear = transformer_model(readout="linear")
    x = simulate(linear, 1, 3, seed=1)
    exact = linear_gaussian.log_likelihood(linear, x).item()
    assert abs(window_one_log_likelihood(linear, x) - exact) < 1e-4


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("name", KNOWING)
def test_likelihood_is_unbiased_when_the_linear_read_out_is_wrong(monkeypatch, name, share):
    """A read-out that is taken for another one: the proposal is worse, and nothing else may change."""
    monkeypatch.setattr(guided, "DEFENSIVE_SHARE", share)
    model = give_observation(tiny_model(proposal=name), MisjudgedObservation)
    assert_unbiased(model, TINY_SEQUENCE, exact_tiny(None))


# The check itself must be able to fail.


def without_corrections(model, x, result):
    """Particles that were never resampled, weighted as if they came from the model."""
    assert not result.resampled.any()
    log_density = model.observation.components(result.read_outs).log_prob(x[:, None, 1:])
    return log_density.sum(dim=-1).logsumexp(dim=1) - math.log(log_density.shape[1])


@pytest.mark.parametrize("name", KNOWING)
def test_weights_without_their_correction_are_noticed(name):
    tiny, transformer = (make(proposal=name, ess_threshold=0.0) for make in (tiny_model, transformer_model))
    few, many = {"n_runs": 10_000, "n_particles": 5}, {"n_runs": 5000, "n_particles": 10}
    for model, (x, exact), size in (
        (tiny, (TINY_SEQUENCE, exact_tiny(None)), few),
        (transformer, transformer_case("gaussian"), many),
    ):
        assert_unbiased(model, x, exact, **size)
        with pytest.raises(AssertionError, match="biased"):
            assert_unbiased(model, x, exact, estimate=without_corrections, **size)


def guided_log_weights(model, x, result):
    """Of a linear read-out in one dimension: log N(X_t; E[X_t | z without its noise], A^2 + S), whatever eps is."""
    deviation = model.attention.attention_covariance.scale(result.noise.attention)
    embedding = model.encoder(model.observation.features(x[:, :-1])).unsqueeze(1)
    mean = model.read_out(result.attention - deviation, embedding, x[:, None, :-1])
    slope = model.readout.projection.weight.square() * model.attention.attention_covariance.matrix()
    variance = slope + model.observation.covariance.matrix()
    return torch.distributions.Normal(mean, variance.sqrt()).log_prob(x[:, None, 1:]).squeeze(-1).detach()


def without_division(model, x, result):
    """The children of a selection by first-stage weights, before the last of two steps, are weighted equally."""
    assert result.resampled[:, 1].all()
    last = guided_log_weights(model, x, result)[:, :, 1]
    return result.log_increments[:, 0] + last.logsumexp(dim=1) - math.log(last.shape[1])


def test_weights_of_the_guided_filter_are_those_by_hand():
    model, x = tiny_model(proposal="guided"), TINY_SEQUENCE.expand(10, -1, -1)
    result = model.filter(x, 5, generator=0)
    expected = guided_log_weights(model, x, result)
    torch.testing.assert_close(result.log_weights, expected.log_softmax(dim=1))
    torch.testing.assert_close(result.log_increments, expected.logsumexp(dim=1) - math.log(5))


def test_children_that_are_not_divided_by_their_first_stage_weights_are_noticed():
    model = tiny_model(proposal="auxiliary")
    x = torch.tensor([0.5, -0.8, 2.5], dtype=torch.float64).unsqueeze(-1)  # the last is a surprise
    exact = quadrature.exact(model, x).log_likelihood.item()
    assert_unbiased(model, x, exact)
    with pytest.raises(AssertionError, match="biased"):
        assert_unbiased(model, x, exact, estimate=without_division)


# --- the best there is, where nothing is approximated -------------------------------------------------------------


def without_noise_on_queries_keys_and_values(model):
    for name in ("query", "key", "value"):
        model.latent_covariances()[name].assign_(0.0)
    return model


@pytest.mark.parametrize("n_particles", [1, 6])
@pytest.mark.parametrize("name", KNOWING)
def test_weights_do_not_depend_on_eps_where_the_read_out_is_linear(name, n_particles):
    model = without_noise_on_queries_keys_and_values(linear_model(proposal=name, predict_change=True))
    x = sequences(3, 8, 3)
    result = model.filter(x, n_particles, generator=0)
    torch.testing.assert_close(result.log_likelihood, linear_gaussian.log_likelihood(model, x).detach())
    torch.testing.assert_close(result.log_weights, torch.full_like(result.log_weights, -math.log(n_particles)))
    assert n_particles == 1 or result.attention.std(dim=1).min() > 0.01  # the particles do differ


@pytest.mark.parametrize("window", [None, 3])
def test_weights_do_not_depend_on_eps_with_memory_either(window):
    """Without noise on q, k and v all particles attend alike: X_t given the past is Gaussian in closed form."""
    model = without_noise_on_queries_keys_and_values(linear_model(proposal="guided", window=window))
    x = sequences(3, 8, 3)
    result = model.filter(x, 4, generator=0)
    silence = type(result.noise)(*(torch.zeros_like(eps[:, :1]) for eps in result.noise))
    mean = model.replay(x, silence).parameters[:, 0].detach()
    read = model.readout.projection.weight
    covariance = read @ model.attention.attention_covariance.matrix() @ read.T + model.observation.covariance.matrix()
    exact = torch.distributions.MultivariateNormal(mean, covariance.detach()).log_prob(x[:, 1:, :2])
    torch.testing.assert_close(result.log_increments, exact)


def test_weights_of_the_bootstrap_do_depend_on_eps():
    model = without_noise_on_queries_keys_and_values(linear_model(proposal="bootstrap"))
    assert model.filter(sequences(3, 8, 3), 6, generator=0).log_weights.std(dim=1).min() > 0.01


@pytest.mark.parametrize("readout", ["linear", "transformer"])
def test_effective_samples_where_observations_are_informative(readout):
    settings = {"initial_observation_variance": 0.02, "initial_latent_variance": 0.3, "d_model": 8, "d_ff": 8}
    x = 0.5 * sequences(40, 8, seed=2)
    share, spread = {}, {}
    for name in NAMES:
        model = make_model(proposal=name, readout=readout, spread_covariances=False, **settings)
        result = model.filter(x.repeat(20, 1, 1), 20, generator=0)
        share[name] = result.ess.mean().item() / 20
        spread[name] = result.log_likelihood.view(20, 40).var(dim=0).mean().item()
    assert share["guided"] > 1.3 * share["bootstrap"], share
    assert share["auxiliary"] > 1.3 * share["bootstrap"], share
    # A variance from 20 repeats of 40 sequences is known to about sqrt(2 / 760) = 5 %, or 10 % with heavy tails.
    assert spread["guided"] < 0.7 * spread["bootstrap"], spread
    assert spread["auxiliary"] < 0.7 * spread["bootstrap"], spread


# --- the linearised read-out against numpy ------------------------------------------------------------------------


def linearised_and_oracle(n_particles, **settings):
    """`Linearised` at one mean for all particles; and (y, A, S) of it by finite differences, in numpy."""
    model = make_model(n_inputs=3, n_targets=2, d_model=4, d_ff=5, covariance="full", predict_change=True, **settings)
    generator = as_generator(5)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mean, embedding, last, target = draw(1, 1, 4), draw(1, 1, 4), draw(1, 1, 2), draw(1, 2)
    linear = Linearised(model, mean.expand(1, n_particles, 4), embedding, last, target)

    def components(z):
        with torch.no_grad():
            return model.observation.components(model.read_out(z, embedding.expand_as(z), last))

    at, step = components(mean), 1e-6
    root = np.linalg.cholesky(model.attention.attention_covariance.matrix().detach().numpy())
    slope = np.empty((2, 4))
    for i in range(4):
        shift = torch.from_numpy(root[:, i] * step)
        slope[:, i] = (components(mean + shift).mean - components(mean - shift).mean)[0, 0].numpy() / (2 * step)
    noise = at.covariance.expand(1, 1, 2, 2)[0, 0].numpy()
    return linear, ((target - at.mean[:, 0])[0].numpy(), slope, noise)


@pytest.mark.parametrize("observation", ["gaussian", "heteroscedastic", "student_t"])
@pytest.mark.parametrize("readout", ["linear", "transformer"])
def test_linearised_read_out_against_explicit_densities(readout, observation):
    linear, (y, slope, noise) = linearised_and_oracle(7, readout=readout, observation=observation)
    np.testing.assert_allclose(linear.residual[0, 0], y, rtol=1e-9)
    np.testing.assert_allclose(linear.slope[0, 0], slope, atol=1e-6)
    assert abs(noise[0, 1]) > 1e-3 or observation != "gaussian"  # correlated targets
    total = slope @ slope.T + noise
    gain = slope.T @ np.linalg.inv(total)
    posterior = scipy.stats.multivariate_normal(gain @ y, np.eye(4) - gain @ slope)
    eps = torch.randn(1, 7, 4, generator=as_generator(1), dtype=torch.float64)
    expected = posterior.logpdf(eps[0].numpy()) - scipy.stats.multivariate_normal(np.zeros(4)).logpdf(eps[0].numpy())
    np.testing.assert_allclose(linear.log_ratio(eps)[0], expected, rtol=1e-5, atol=1e-5)
    evidence = scipy.stats.multivariate_normal(np.zeros(2), total).logpdf(y)
    np.testing.assert_allclose(linear.log_evidence()[0], np.full(7, evidence), rtol=1e-5)


@pytest.mark.parametrize("readout", ["linear", "transformer"])
def test_draws_have_the_moments_of_the_posterior(readout):
    n_draws = 200_000
    linear, (y, slope, noise) = linearised_and_oracle(n_draws, readout=readout, initial_observation_variance=0.005)
    gain = slope.T @ np.linalg.inv(slope @ slope.T + noise)
    mean, covariance = gain @ y, np.eye(4) - gain @ slope
    assert np.linalg.eigvalsh(covariance).min() < 0.7  # X_t says something about eps
    assert np.abs(mean).max() > 0.1
    generator = as_generator(2)
    eps = torch.randn(1, n_draws, 4, generator=generator, dtype=torch.float64)
    drawn = linear.posterior_draw(eps, generator)[0].numpy()
    assert (np.abs(drawn.mean(axis=0) - mean) < 4.5 / n_draws**0.5).all()  # variances are at most 1
    # A product of two Gaussians of variance at most 1 has a variance of at most 2.
    assert (np.abs(np.cov(drawn.T) - covariance) < 4.5 * (2 / n_draws) ** 0.5).all()


# --- trajectories, gradients and statistics ------------------------------------------------------------------


@pytest.mark.parametrize(("window", "ess_threshold"), [(None, 1.0), (1, 1.0), (3, 0.5), (None, 0.0)])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("name", KNOWING)
def test_replay_of_traced_trajectories_is_what_the_filter_saw(name, gaps, window, ess_threshold):
    model = make_model(
        d_model=5,
        n_inputs=2,
        n_targets=2,
        proposal=name,
        window=window,
        ess_threshold=ess_threshold,
        covariance="full",
        predict_change=True,
        position_encoding="sinusoidal",
        initial_observation_variance=0.1,
    )
    x = sequences(4, 9, 2)
    if gaps:
        x[1, 3], x[2, 6, 0] = NAN, NAN
    given = model.attention.draw_noise(4, 6, 9, as_generator(1))
    before = [eps.clone() for eps in given]
    result = filter_under(given, model, x, as_generator(3), keep_attention=True)
    assert all(torch.equal(eps, copy) for eps, copy in zip(given, before, strict=True))  # the caller's noise is his
    assert not torch.equal(result.noise.attention, given.attention)
    assert result.noise.query is given.query
    trajectories = result.trajectories
    completed = None if result.completed is None else gather_trajectories(result.completed, trajectories)
    replayed = model.replay(x, result.noise.along(trajectories), completed)
    torch.testing.assert_close(replayed.attention, gather_trajectories(result.attention, trajectories))
    torch.testing.assert_close(replayed.parameters, gather_trajectories(result.read_outs, trajectories))
    stale = model.replay(x, given.along(trajectories), completed)
    assert not torch.allclose(stale.attention, replayed.attention)


@pytest.mark.parametrize("name", KNOWING)
def test_the_same_seed_gives_the_same_filter_with_and_without_kernels(name):
    model, x = make_model(d_model=4, n_inputs=2, n_targets=2, window=3, proposal=name), sequences(3, 8, 2)
    result = model.filter(x, 6, generator=0)
    with kernels.disabled():
        expected = model.filter(x, 6, generator=0)
    for field in ("log_increments", "log_weights", "attention", "read_outs"):
        torch.testing.assert_close(getattr(result, field), getattr(expected, field))


@pytest.mark.parametrize(("name", "gradient"), [("auxiliary", "pathwise"), ("guided", "pathwise"), ("guided", "score")])
def test_gradients_are_exact_in_the_limit(name, gradient):
    model = tiny_model(window=2, gradient=gradient, proposal=name)
    log_likelihood = quadrature.exact(model, TINY_SEQUENCE, n_nodes=10).log_likelihood
    exact = exact_gradient(model, log_likelihood)
    assert_gradients_match(model, TINY_SEQUENCE, exact, n_groups=20 if gradient == "pathwise" else 12)


def test_statistics_are_the_exact_posterior_second_moments():
    model = tiny_model(window=2, ess_threshold=0.5, noise_learning="em", proposal="guided")
    assert_statistics_are_posterior_moments(model)


# --- predictions, which know nothing of X_t -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ess_threshold", [0.5, 1.0])
@pytest.mark.parametrize("readout", ["linear", "transformer"])
def test_the_predictive_mixture_does_not_know_what_it_predicts(name, ess_threshold, readout):
    model = make_model(
        d_model=4, proposal=name, ess_threshold=ess_threshold, readout=readout, initial_observation_variance=0.1
    )
    x = sequences(3, 7)
    before = model.filter(x, 8, generator=0)
    for t in (1, 2, 5, 7):
        other = x.clone()
        other[:, t] = x[:, t] + 0.7
        after = model.filter(other, 8, generator=0)
        for field in ("parameters", "log_weights"):
            one, same = getattr(before.predictive, field)[:, :, :t], getattr(after.predictive, field)[:, :, :t]
            assert torch.equal(one, same), (field, t)
        if t < 7:
            assert not torch.equal(before.predictive.parameters[:, :, t], after.predictive.parameters[:, :, t])
        assert torch.equal(before.read_outs[:, :, t - 1], after.read_outs[:, :, t - 1]) == (name == "bootstrap")


@pytest.mark.parametrize("ess_threshold", [0.5, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_predictive_density_is_unbiased(name, ess_threshold):
    """Likelihood of X_1, ..., X_{T-1} times the predictive density of X_T, on average: the exact likelihood."""
    model = tiny_model(proposal=name, ess_threshold=ess_threshold)
    x = TINY_SEQUENCE.expand(10_000, -1, -1)
    result = model.filter(x, 5, generator=0)
    last = result.predictive.log_prob(x[:, 1:])[:, -1]
    torch.testing.assert_close(result.predictive.log_weights.logsumexp(dim=1), torch.zeros(10_000, 3).double())
    ratio, error = mean_and_error(torch.exp(result.log_increments[:, :-1].sum(dim=-1) + last - exact_tiny(None)))
    assert error < 0.03
    assert abs(ratio - 1) < 4 * error


# --- streams and gaps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("ess_threshold", [0.5, 1.0])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_guided_stream_gives_the_numbers_of_the_filter(window, ess_threshold, gaps):
    model = make_model(
        n_inputs=2,
        n_targets=2,
        d_model=4,
        d_ff=4,
        window=window,
        ess_threshold=ess_threshold,
        proposal="guided",
        initial_observation_variance=0.1,
    )
    x = sequences(3, 20, 2)
    if gaps:
        x[:, 4], x[1, 9:12, 0] = NAN, NAN
    noise = model.attention.draw_noise(3, 6, 20, as_generator(1))
    result = filter_under(noise, model, x, as_generator(2))
    _, infos = stream_under(noise, model, x, seed=2)
    torch.testing.assert_close(torch.stack([info.log_density for info in infos[1:]], dim=-1), result.log_increments)
    torch.testing.assert_close(torch.stack([info.ess for info in infos[1:]], dim=-1), result.ess)
    pit = torch.stack([info.pit for info in infos[1:]], dim=1)
    torch.testing.assert_close(pit, result.predictive.cdf(x[:, 1:]), equal_nan=True)
    assert result.resampled.any()


@pytest.mark.parametrize("name", NAMES)
def test_densities_of_a_stream_are_unbiased(name):
    """In a stream X_t is not known when ancestors are selected: there the auxiliary proposal is the guided one."""
    model = tiny_model(proposal=name)
    x = TINY_SEQUENCE.expand(10_000, -1, -1)
    state, total = model.init_state(10_000, 5, generator=0), 0.0
    for t in range(4):
        state, info = model.observe(state, x[:, t])
        total = total + info.log_density
    ratio, error = mean_and_error(torch.exp(total - exact_tiny(None)))
    assert error < 0.03
    assert abs(ratio - 1) < 4 * error
    assert model.forecast(state, 3, n_samples=2, generator=0).isfinite().all()


@pytest.mark.parametrize("name", KNOWING)
@pytest.mark.parametrize("ess_threshold", [0.5, 1.0])
def test_likelihood_with_missing_values_is_unbiased(name, ess_threshold):
    model, x = gappy_model(proposal=name, ess_threshold=ess_threshold), gappy_sequence()
    assert_unbiased(model, x, masked_linear.log_likelihood(model, x).item())


@pytest.mark.parametrize("name", KNOWING)
def test_steps_with_missing_values_are_those_of_the_bootstrap(name):
    model, x = gappy_model(proposal=name), gappy_sequence().expand(4, -1, -1)
    given = model.attention.draw_noise(4, 7, 6, as_generator(1))
    result = filter_under(given, model, x, as_generator(0))
    gaps = x[0, 1:].isnan().any(dim=-1)
    for step, gap in enumerate(gaps.tolist()):
        kept = torch.equal(result.noise.attention[:, :, step], given.attention[:, :, step])
        as_predicted = torch.equal(result.read_outs[:, :, step], result.predictive.parameters[:, :, step])
        assert kept == as_predicted == gap, step
    # After the first gap particles have inputs of their own; whole observations still guide them.
    assert gaps.tolist() == [False, True, True, False, True, False]


# --- distributions and degenerate models ---------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWING)
@pytest.mark.parametrize(
    "settings",
    [
        {"observation": "negative_binomial"},
        {"observation": "categorical", "n_classes": 3},
        {"initial_latent_variance": 0.0},
        {"encoder": "gru", "n_heads": 2},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_other_models_run(name, settings):
    x = sequences(3, 8).abs().round().clamp(max=2.0)
    model = make_model(d_model=4, proposal=name, **settings)
    result = model.filter(x, 50, generator=0)
    assert result.log_likelihood.isfinite().all()
    plain = make_model(d_model=4, proposal="bootstrap", **settings).filter(x, 50, generator=0)
    assert (result.log_likelihood - plain.log_likelihood).abs().max() < 2.0  # the same likelihood, roughly


def test_without_noise_on_z_the_guided_filter_is_the_bootstrap():
    models = [make_model(d_model=4, proposal=name) for name in ("bootstrap", "guided")]
    for model in models:
        model.attention.attention_covariance.assign_(0.0)
    x = sequences(3, 8)
    one, other = (model.filter(x, 6, generator=0) for model in models)
    torch.testing.assert_close(one.log_increments, other.log_increments)


# --- out of all bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("proposal", ["guided", "auxiliary"])
def test_proposals_work_in_inference_mode(proposal):
    model, x = make_model(d_model=4, proposal=proposal), sequences(2, 5)
    expected = model.filter(x, 5, generator=0).log_likelihood
    with torch.inference_mode():
        found = model.filter(x.clone(), 5, generator=0).log_likelihood
    torch.testing.assert_close(found.clone(), expected)


@pytest.mark.parametrize("proposal", ["guided", "auxiliary"])
def test_observations_and_weights_out_of_all_bounds_collapse_as_they_do_with_the_bootstrap(proposal):
    model, x = make_model(d_model=4, proposal=proposal), sequences(2, 5)
    wild = x.clone()
    wild[0, 3] = 1e200
    with pytest.raises(WeightCollapseError) as caught:
        model.filter(wild, 5, generator=0)
    assert (caught.value.sequence, caught.value.step) == (0, 3)
    log_likelihood = model.filter(wild, 5, generator=0, on_collapse="uniform").log_likelihood
    assert log_likelihood[0] == -torch.inf
    assert log_likelihood[1].isfinite()
    with torch.no_grad():
        model.attention.query.weight.fill_(torch.nan)
    with pytest.raises(WeightCollapseError):
        model.filter(x, 5, generator=0)
