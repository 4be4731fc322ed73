"""Forecasts: joint paths with the right distribution, given the history and nothing else."""

import pytest
import torch
from helpers.models import linear_model, make_model, mean_and_error, sequences, tiny_model
from helpers.oracles import linear_gaussian
from helpers.oracles.importance import weighted_futures
from helpers.user_modules import QuantileObservation, give_observation


def test_paths_of_the_linear_model_have_the_exact_joint_distribution():
    """Window 1, linear read-out: X_{t+1} = A X_t + c + noise, so means and lagged covariances are known."""
    model = linear_model(n_inputs=2)
    history = sequences(1, 3, 2)
    horizon, n_samples = 3, 40_000
    paths = model.forecast(history, horizon, n_samples, generator=0)[0]

    unit = torch.cat((torch.zeros(1, 2), torch.eye(2))).double().view(3, 1, 2).expand(-1, 2, -1)
    responses, noise = (tensor.detach() for tensor in linear_gaussian.distribution(model, unit))
    offset = responses[0, 0]
    step = (responses[1:, 0] - offset).T  # A, column by column
    mean, covariance = history[0, -1], torch.zeros(2, 2).double()
    for ahead in range(horizon):
        mean = step @ mean + offset
        covariance = step @ covariance @ step.T + noise
        found, error = mean_and_error(paths[:, ahead])
        assert ((found - mean).abs() < 4.5 * error).all()
        centred = paths[:, ahead] - mean
        found, error = mean_and_error(centred.unsqueeze(-1) * centred.unsqueeze(-2))
        assert ((found - covariance).abs() < 4.5 * error).all()
        if ahead + 1 < horizon:  # Cov(X_{t+1}, X_t) = A Cov(X_t): steps of one path belong together
            following = paths[:, ahead + 1] - (step @ mean + offset)
            found, error = mean_and_error(following.unsqueeze(-1) * centred.unsqueeze(-2))
            assert ((found - step @ covariance).abs() < 4.5 * error).all()


@pytest.mark.parametrize("window", [None, 2, 3])
def test_paths_of_a_model_with_memory_match_brute_force(window):
    model = tiny_model(window=window)
    history = torch.tensor([0.5, -0.8, 1.3], dtype=torch.float64).unsqueeze(-1)
    futures, weights = weighted_futures(model, history, horizon=3, n_samples=400_000, seed=0)
    futures, weights = torch.from_numpy(futures), torch.from_numpy(weights)
    # Independent runs: the paths of one forecast share their particles.
    runs, n_samples = 200, 500
    paths = model.forecast(history.expand(runs, -1, -1), 3, n_samples, n_particles=500, generator=1)[..., 0]
    moments = {
        "mean": lambda x: x,
        "square": lambda x: x**2,
        "lag 1": lambda x: x[..., 1:] * x[..., :-1],
        "lag 2": lambda x: x[..., 2:] * x[..., :-2],
    }
    for name, moment in moments.items():
        exact = (weights.unsqueeze(-1) * moment(futures)).sum(dim=0)
        exact_error = (weights.square().unsqueeze(-1) * (moment(futures) - exact).square()).sum(dim=0).sqrt()
        found, error = mean_and_error(moment(paths).mean(dim=1))
        assert (error < 0.03 * (1 + exact.abs())).all()
        assert ((found - exact).abs() < 4.5 * (error.square() + exact_error.square()).sqrt()).all(), name


def test_first_step_is_the_one_step_predictive_of_the_filter():
    """So no step is dropped, and the history is weighted by what it holds and not by what comes after."""
    model = make_model(d_model=3, d_ff=4, initial_latent_variance=0.5)
    history = sequences(1, 6)
    unseen = torch.full((1, 1, 1), 3.0).double()  # has no part in its own prediction
    predictive = model.filter(torch.cat((history, unseen), dim=1), 40_000, generator=0).predictive
    paths = model.forecast(history, 1, n_samples=40_000, n_particles=40_000, generator=1)[0, :, 0]
    # Two estimates with 40,000 draws each. Resampled particles are not independent: allow for half as many.
    error = (predictive.variance[0, -1] * 2 / 20_000).sqrt()
    assert abs(paths.mean() - predictive.mean[0, -1]) < 4 * error
    for p in (0.05, 0.5, 0.95):
        share = (paths <= predictive.quantile(p)[0, -1]).double().mean()
        assert abs(share - p) < 4 * (p * (1 - p) * 2 / 20_000) ** 0.5


def test_known_inputs_are_used_at_the_step_they_belong_to():
    """The input at step h informs step h + 1 and later ones; the last one informs nothing."""
    model = make_model(d_model=3, n_inputs=2, n_targets=1)
    history = sequences(2, 4, 2)
    known = torch.zeros(2, 3, 1).double()
    plain = model.forecast(history, 3, 50, future_inputs=known, generator=0)
    for step in range(3):
        changed = known.clone()
        changed[:, step] = 5.0
        paths = model.forecast(history, 3, 50, future_inputs=changed, generator=0)
        differs = (paths != plain).any(dim=(0, 1, 3))
        assert differs.tolist() == [ahead > step for ahead in range(3)]


def test_same_seed_same_paths():
    model, history = make_model(d_model=3), sequences(6, 4)
    paths = model.forecast(history, 3, 50, generator=0)
    assert torch.equal(paths, model.forecast(history, 3, 50, generator=0))
    assert not torch.equal(paths, model.forecast(history, 3, 50, generator=1))


def test_a_forecast_in_chunks_is_that_of_each_sequence():
    """So many that not all are done at a time; draws without chance, so that they can be compared."""
    model = give_observation(make_model(d_model=3, window=1, initial_latent_variance=0.0), QuantileObservation)
    history = sequences(9, 50)
    paths = model.forecast(history, 2, 10_000, n_particles=1, generator=0)
    assert 3 < max(model.observation.asked) < 9
    model.observation.asked.clear()
    by_three = torch.cat([model.forecast(three, 2, 10_000, n_particles=1, generator=1) for three in history.split(3)])
    assert set(model.observation.asked) == {3}
    torch.testing.assert_close(paths.sort(dim=1).values, by_three.sort(dim=1).values)


@pytest.mark.parametrize("position_encoding", ["sinusoidal", "learned"])
def test_positions_go_on_where_the_history_ends(position_encoding):
    """A forecast from a history of one more observation sees the same positions as the filter does."""
    model = make_model(d_model=4, position_encoding=position_encoding, max_positions=6, initial_latent_variance=0.0)
    model.observation.covariance.assign_(1e-16)
    if position_encoding == "learned":
        torch.nn.init.normal_(model.encoder.position.table, generator=torch.Generator().manual_seed(0))
    path = model.forecast(sequences(1, 2), 4, n_samples=1, generator=0)[:, 0]
    whole = torch.cat((sequences(1, 2), path), dim=1)
    model.observation.covariance.assign_(1.0)
    means = model.filter(whole, 1, generator=0).predictive.mean
    torch.testing.assert_close(means[:, 2:], path, atol=1e-6, rtol=0)


def test_a_history_of_one_observation_is_enough():
    model = make_model(d_model=3)
    assert model.forecast(sequences(2, 0), 5, n_samples=7, generator=0).shape == (2, 7, 5, 1)
