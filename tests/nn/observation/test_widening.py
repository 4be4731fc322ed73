"""Distributions made wider by a factor: the same centre, deviations times the factor, in torch and in the kernels."""

import math

import pytest
import torch
from helpers.models import make_model, random_covariance, sequences

from smc_transformer.inference.filter import particle_filter
from smc_transformer.kernels import disabled
from smc_transformer.learning import em_step, fit, training_step
from smc_transformer.nn import Covariance
from smc_transformer.nn.observation.scaled import ScaledObservation, nearest_correlation

WITH_WIDTH = ("gaussian", "heteroscedastic", "student_t")
FACTORS = (0.4, 1.0, 2.5)
every_distribution = pytest.mark.parametrize("observation", WITH_WIDTH)
every_factor = pytest.mark.parametrize("factor", FACTORS)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def random_model(observation, **settings):
    """Two targets with correlated noise; a scaled distribution has bounds that cut some of its scales off."""
    model = make_model(d_model=4, d_ff=5, n_inputs=2, n_targets=2, observation=observation, **settings)
    distribution = model.observation
    if isinstance(distribution, ScaledObservation):
        with torch.no_grad():
            distribution.correlation.copy_(nearest_correlation(random_covariance(distribution.correlation, seeded(1))))
            distribution.lowest.fill_(-0.6)
            distribution.highest.fill_(0.1)
    return model


def components(model, n_rows=5):
    parameters = torch.randn(n_rows, model.observation.n_parameters, generator=seeded(0), dtype=torch.float64)
    return model.observation.components(parameters)


@every_distribution
@every_factor
def test_deviations_are_multiplied_and_means_are_not(observation, factor):
    model = random_model(observation)
    before = components(model)
    model.observation.widen_(factor)
    after = components(model)
    assert torch.equal(after.mean, before.mean)
    torch.testing.assert_close(after.variance, factor**2 * before.variance)
    torch.testing.assert_close(after.covariance, factor**2 * before.covariance)


@every_distribution
@every_factor
def test_draws_are_moved_away_from_the_centre(observation, factor):
    model = random_model(observation)
    before = components(model)
    drawn = before.sample(seeded(2))
    model.observation.widen_(factor)
    torch.testing.assert_close(components(model).sample(seeded(2)), before.mean + factor * (drawn - before.mean))


@every_distribution
@every_factor
def test_densities_and_distribution_functions_are_those_of_the_wider_distribution(observation, factor):
    """With Y = mean + factor (X - mean): p_Y(y) = p_X(x) / factor^n and P(Y <= y) = P(X <= x)."""
    model = random_model(observation)
    before = components(model)
    x = before.mean + torch.randn(5, 2, generator=seeded(3), dtype=torch.float64)
    y = before.mean + factor * (x - before.mean)
    log_prob, cdf = before.log_prob(x), before.cdf(x)
    one = torch.tensor([True, False]).expand(5, -1)
    log_prob_of_one = before.log_prob(x, one)
    model.observation.widen_(factor)
    after = components(model)
    torch.testing.assert_close(after.log_prob(y), log_prob - 2 * math.log(factor))
    torch.testing.assert_close(after.log_prob(y, one), log_prob_of_one - math.log(factor), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(after.cdf(y), cdf)


@every_distribution
@every_factor
def test_intervals_and_scores_of_predictive_mixtures_are_wider(observation, factor):
    """With one particle the mixture is one component: its interval is as much wider, and so is its CRPS."""
    model = random_model(observation, initial_latent_variance=0.0)
    x = sequences(3, 5, 2)
    before = model.filter(x, 1, generator=0).predictive
    model.observation.widen_(factor)
    after = model.filter(x, 1, generator=0).predictive
    centre = before.mean
    for old, new in zip(before.interval(0.9), after.interval(0.9), strict=True):
        torch.testing.assert_close(new - centre, factor * (old - centre), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after.variance_parts().within, factor**2 * before.variance_parts().within)
    torch.testing.assert_close(after.crps(centre), factor * before.crps(centre), rtol=1e-3, atol=1e-5)


@every_distribution
def test_draws_given_a_part_are_those_of_the_wider_distribution(observation):
    """A draw of what is missing given a value that is as much further out, under the same numbers."""
    model = random_model(observation)
    before = components(model)
    observed = torch.tensor([True, False]).expand(5, -1)
    x = before.mean + torch.randn(5, 2, generator=seeded(3), dtype=torch.float64)
    drawn = before.complete(x.masked_fill(~observed, math.nan), observed, seeded(4))
    model.observation.widen_(2.5)
    y = (before.mean + 2.5 * (x - before.mean)).masked_fill(~observed, math.nan)
    found = components(model).complete(y, observed, seeded(4))
    expected = before.mean + 2.5 * (drawn - before.mean)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("structure", ["isotropic", "diagonal", "full"])
@every_factor
def test_every_structure_of_a_gaussian_covariance_is_widened(structure, factor):
    model = random_model("gaussian", observation_covariance=structure)
    before = model.observation.covariance.matrix().clone()
    model.observation.widen_(factor)
    torch.testing.assert_close(model.observation.covariance.matrix(), factor**2 * before)


@every_distribution
def test_widenings_multiply_and_can_be_undone(observation):
    once, twice = random_model(observation), random_model(observation)
    before = components(once).covariance
    once.observation.widen_(3.0)
    for factor in (1.5, 2.0):
        twice.observation.widen_(factor)
    torch.testing.assert_close(components(once).covariance, components(twice).covariance)
    once.observation.widen_(1 / 3)
    torch.testing.assert_close(components(once).covariance, before)


@every_distribution
def test_nothing_but_the_noise_of_observations_is_widened(observation):
    model = random_model(observation)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.observation.widen_(2.0)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"observation.covariance.factor" if observation == "gaussian" else "observation.widening"}


@every_distribution
def test_a_widening_is_saved_with_the_weights(observation):
    model, other = random_model(observation), random_model(observation)
    model.observation.widen_(1.7)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(components(other).covariance, components(model).covariance, rtol=0, atol=0)


@pytest.mark.usefixtures("drawn_by_turns")
@every_distribution
@every_factor
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
def test_kernels_and_torch_agree_on_a_widened_distribution(observation, factor, training, gaps):
    model = random_model(observation).train(training)
    x = sequences(3, 12, 2)
    if gaps:
        x[0, 3] = x[1, 4:6, 1] = math.nan
    noise = model.attention.draw_noise(3, 7, 12, seeded(2))

    def increments():
        return particle_filter(model, x, model.settings(7), seeded(1), noise=noise).log_increments

    plain = increments()
    model.observation.widen_(factor)
    by_kernels = increments()
    with disabled():
        by_torch = increments()
    # With gaps torch adds 1e-9 to the covariance of all sequences, C to that of those with a gap.
    torch.testing.assert_close(by_kernels, by_torch, rtol=1e-7 if gaps else 1e-9, atol=1e-10)
    assert ((by_kernels - plain).abs().max() > 0.01).item() == (factor != 1.0)


@every_distribution
def test_forecasts_of_kernels_and_torch_agree_on_a_widened_distribution(observation):
    model = random_model(observation)
    model.observation.widen_(1.8)
    paths = model.forecast(sequences(2, 5, 2), 3, 6, generator=1)
    with disabled():
        torch.testing.assert_close(model.forecast(sequences(2, 5, 2), 3, 6, generator=1), paths)


def test_em_after_a_widening_moves_a_gaussian_covariance_as_ever():
    model = random_model("gaussian")
    model.observation.widen_(2.0)
    before = model.observation.covariance.matrix().clone()
    step = training_step(model, sequences(6, 8, 2), generator=seeded(0))
    em_step(model, step.statistics, 0.25)
    expected = 0.75 * before + 0.25 * step.statistics.observation
    torch.testing.assert_close(model.observation.covariance.matrix(), expected)


@pytest.mark.parametrize("observation", ["heteroscedastic", "student_t"])
def test_em_after_a_widening_learns_a_correlation_and_leaves_the_widening(observation):
    model = random_model(observation)
    model.observation.widen_(2.0)
    before = model.observation.correlation.clone()
    step = training_step(model, sequences(6, 8, 2), generator=seeded(0))
    em_step(model, step.statistics, 0.5)
    correlation = model.observation.correlation
    torch.testing.assert_close(correlation.diagonal(), torch.ones(2).double())
    assert not torch.equal(correlation, before)
    assert model.observation.widening == 2.0


@every_distribution
def test_training_goes_on_after_a_widening(observation):
    """An observation model made far too wide finds back: by EM, or by scales that become smaller."""
    model = random_model(observation, n_particles=4)
    x = sequences(40, 8, 2)
    fit(model, x, epochs=2, batch_size=10, progress=False)
    model.observation.widen_(4.0)
    history = fit(model, x, epochs=8, batch_size=10, learning_rate=2e-2, progress=False)
    assert history[-1].training_loss < history[0].training_loss - (0.0 if observation == "gaussian" else 0.3)
    assert all(part.matrix().isfinite().all() for part in model.modules() if isinstance(part, Covariance))


@pytest.mark.parametrize(
    "settings", [{"observation": "negative_binomial"}, {"observation": "categorical", "n_classes": 3}], ids=str
)
def test_distributions_without_a_width_say_so(settings):
    model = make_model(d_model=3, **settings)
    with pytest.raises(NotImplementedError, match="Observation has no width to change"):
        model.observation.widen_(2.0)
