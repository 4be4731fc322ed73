"""Missing values: steps without a weight, wholly or partly, against the closed form of the linear model."""

import pytest
import torch
from helpers.gradients import estimated_gradient, exact_gradient
from helpers.models import STRUCTURES, gappy_model, gappy_sequence, make_model, mean_and_error, sequences
from helpers.oracles import masked_linear

from smc_transformer.learning import em_step, negative_log_likelihood, power_step_size, training_step
from smc_transformer.smc import gather_trajectories

NAN = float("nan")


def repeated(x, n_runs):
    return x.expand(n_runs, -1, -1)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("ess_threshold", [0.5, 1.0])
def test_likelihood_of_what_is_observed_is_unbiased(structure, ess_threshold):
    model, x = gappy_model(structure, ess_threshold=ess_threshold), gappy_sequence()
    exact = masked_linear.log_likelihood(model, x).item()
    result = model.filter(repeated(x, 20_000), 5, generator=0)
    ratio, error = mean_and_error(torch.exp(result.log_likelihood - exact))
    assert error < 0.03
    assert abs(ratio - 1) < 4 * error


def test_predictions_converge_to_the_exact_conditionals():
    model, x = gappy_model(), gappy_sequence()
    predictive = model.filter(repeated(x, 200), 2000, generator=0).predictive
    for t in range(6):
        mean, covariance = masked_linear.conditional(model, x, t)
        at_t = slice(2 * t, 2 * t + 2)
        found, error = mean_and_error(predictive.mean[:, t])
        assert ((found - mean[at_t]).abs() < 4 * error + 1e-9).all(), t
        found, error = mean_and_error(predictive.variance[:, t])
        # The variance of M particles is low by a share of 1 / M.
        assert ((found - covariance.diagonal()[at_t]).abs() < 4 * error + covariance.diagonal()[at_t] / 500).all(), t


def test_drawn_values_have_the_exact_smoothing_distribution():
    model, x = gappy_model(), gappy_sequence()
    result = model.filter(repeated(x, 400), 1000, generator=0)
    values = gather_trajectories(result.completed, result.trajectories)
    weights = result.log_weights[:, :, -1].exp()[:, :, None, None]
    mean, covariance = masked_linear.conditional(model, x, 6)
    missing = x[1:].isnan()
    found, error = mean_and_error((weights * values).sum(dim=1))
    exact = mean.view(6, 2)
    # Self-normalised averages over M = 1000 particles have a bias of the order of 1 / M.
    assert ((found - exact).abs()[missing] < 4 * error[missing] + 0.003).all()
    found, error = mean_and_error((weights * (values - exact).square()).sum(dim=1))
    exact_variance = covariance.diagonal().view(6, 2)
    assert ((found - exact_variance).abs()[missing] < 4 * error[missing] + 0.003).all()
    observed = ~missing
    assert (values[..., observed] == x[1:][observed]).all()


@pytest.mark.parametrize("gradient", ["pathwise", "score"])
def test_gradients_with_missing_values_are_exact_in_the_limit(gradient):
    model, x = gappy_model(gradient=gradient), gappy_sequence()
    exact = exact_gradient(model, masked_linear.log_likelihood(model, x))
    few, many = (
        estimated_gradient(model, x, n_particles, runs_per_group=300, seed=seed)
        for n_particles, seed in ((60, 1), (120, 2))
    )
    for name, expected in exact.items():
        # Extrapolated from M and 2 M particles: without the bias of order 1 / M.
        mean, error = mean_and_error(2 * many[name] - few[name])
        assert (error < 0.2 * (expected.abs().max() + 0.3)).all(), f"{name}: too noisy to prove anything"
        assert ((mean - expected).abs() <= 4.5 * error + 1e-9).all(), name


def test_em_finds_the_observation_covariance_with_a_fifth_missing():
    model = gappy_model(n_particles=20)
    truth = model.observation.covariance.matrix().detach().clone()
    start = sequences(400, 0, 2, seed=1)
    data = torch.cat((start, model.forecast(start, 25, n_samples=1, generator=1)[:, 0]), dim=1)
    generator = torch.Generator().manual_seed(2)
    data[:, 1:][torch.rand(data[:, 1:].shape, generator=generator) < 0.2] = NAN
    model.observation.covariance.assign_(2.0)
    for p in range(1, 121):
        batch = data[torch.randint(len(data), (100,), generator=generator)]
        em_step(model, training_step(model, batch, generator=generator).statistics, power_step_size()(p))
    # 8,000 observations of each target: 1.6 % for a variance, three times that as latents blur what is noise.
    tolerance = 4 * 3 * (2 / 8000) ** 0.5 * truth.diagonal().max()
    torch.testing.assert_close(model.observation.covariance.matrix().detach(), truth, atol=tolerance.item(), rtol=0)


def test_a_missing_future_is_a_forecast():
    model = make_model(d_model=3, d_ff=4, initial_latent_variance=0.5)
    history = sequences(1, 5)
    extended = torch.cat((history, torch.full((1, 3, 1), NAN).double()), dim=1)
    filtered = model.filter(extended.expand(200, -1, -1), 200, generator=0)
    ends = filtered.completed[..., -3:, 0]  # nothing is resampled after the last observation
    assert not filtered.resampled[:, -2:].any()
    paths = model.forecast(history.expand(200, -1, -1), 3, n_samples=200, n_particles=200, generator=1)[..., 0]
    lag = lambda x: x[..., 1:] * x[..., :-1]  # noqa: E731
    for moment in (lambda x: x, torch.square, lag):
        one, one_error = mean_and_error(moment(ends).mean(dim=1))
        other, other_error = mean_and_error(moment(paths).mean(dim=1))
        assert ((one - other).abs() < 4 * (one_error.square() + other_error.square()).sqrt()).all()


def test_a_whole_gap_neither_weights_nor_resamples():
    model = make_model(d_model=3)
    x = sequences(2, 6)
    x[:, 3:5] = NAN
    result = model.filter(x, 8, generator=0)
    assert (result.log_increments[:, 2:4] == 0).all()
    torch.testing.assert_close(result.log_weights[:, :, 3], result.log_weights[:, :, 2])
    # Equal weights after the resampling before the gap; the second step of the gap and the one after have nothing new.
    assert result.resampled.tolist() == [[False, True, True, False, False, True]] * 2
    for particle in range(1, 8):
        assert (result.completed[:, 0, 2] != result.completed[:, particle, 2]).all()  # each draws for itself


def test_sequences_without_gaps_are_not_disturbed_by_those_with():
    """The same distribution: a complete sequence has the same likelihood, alone or beside one with gaps."""
    model = make_model(d_model=3, encoder="gru", initial_latent_variance=0.3)
    whole, gappy = sequences(1, 6), sequences(1, 6, seed=1)
    gappy[:, 2] = NAN
    alone = model.filter(whole.expand(300, -1, -1), 200, generator=0).log_likelihood
    beside = model.filter(torch.cat((whole.expand(300, -1, -1), gappy)), 200, generator=1).log_likelihood[:-1]
    one, one_error = mean_and_error(alone)
    other, other_error = mean_and_error(beside)
    assert abs(one - other) < 4 * (one_error**2 + other_error**2) ** 0.5


def test_likelihood_counts_only_steps_with_an_observation():
    model = make_model(d_model=3, n_inputs=2, n_targets=2, initial_latent_variance=0.0)
    x = sequences(3, 6, 2)
    x[:, 4] = NAN
    x[:, 5, 0] = NAN
    total = model.filter(x, 1, generator=0).log_likelihood.sum()
    nll = negative_log_likelihood(model, x, n_particles=1, generator=0)
    # Without latent noise only the drawn values differ between seeds; here the seed is the same.
    assert nll == pytest.approx(-total.item() / (3 * 5))


def test_predictive_density_of_a_gap_is_the_increment():
    model = make_model(d_model=4, n_inputs=2, n_targets=2)
    x = sequences(3, 6, 2)
    x[:, 3, 1] = NAN
    x[1, 4] = NAN
    result = model.filter(x, 7, generator=0)
    torch.testing.assert_close(result.predictive.log_prob(x[:, 1:]), result.log_increments)


@pytest.mark.parametrize("observation", ["heteroscedastic", "student_t", "negative_binomial", "categorical"])
@pytest.mark.parametrize("encoder", ["linear", "lstm", "transformer"])
def test_every_distribution_and_encoder_takes_gaps_in_training_and_forecasts(observation, encoder):
    from smc_transformer.learning import fit

    classes = {"n_classes": 4} if observation == "categorical" else {}
    model = make_model(d_model=4, observation=observation, encoder=encoder, n_particles=4, **classes)
    values = torch.randint(4, (6, 8, 1), generator=torch.Generator().manual_seed(0)).double()
    values[:, 3] = NAN
    values[2, 5:] = NAN
    history = fit(model, values, epochs=2, batch_size=3, progress=False)
    assert all(torch.tensor(report.training_loss).isfinite() for report in history)
    paths = model.forecast(values, 3, n_samples=20, generator=0)
    assert paths.isfinite().all()
    if classes or observation == "negative_binomial":
        assert (paths == paths.round()).all()
        assert (paths >= 0).all()
