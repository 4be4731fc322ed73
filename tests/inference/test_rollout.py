"""Differentiable paths: the distribution of `forecast`, and the gradient of what was drawn."""

import math

import numpy as np
import pytest
import torch
from helpers.models import linear_model, make_model, mean_and_error, sequences, tiny_model
from helpers.oracles import linear_gaussian
from helpers.oracles.deterministic import deterministic_means
from helpers.oracles.importance import weighted_futures

from smc_transformer.inference.paths import rollout
from smc_transformer.nn import Noise
from smc_transformer.smc import gather_trajectories

pytestmark = pytest.mark.usefixtures("drawn_by_turns")

LIMIT = 4.5
"""Standard errors allowed: a test compares some dozens of numbers, each beyond 4.5 with probability 7e-6."""

HORIZON = 3
ENCODERS = ("linear", "transformer", "lstm", "gru", "convolution")
OBSERVATIONS = ("gaussian", "heteroscedastic", "student_t")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def nothing_known(history, horizon=HORIZON):
    return history.new_zeros(len(history), horizon, 0)


def roll(model, history, known=None, *, n_paths=5, n_particles=6, horizon=HORIZON, seed=0):
    known = nothing_known(history, horizon) if known is None else known
    return rollout(model, model.settings(n_particles), history, known, n_paths=n_paths, generator=seeded(seed)).targets


def with_gaps(history):
    """Some targets missing: single coordinates, whole steps, the last step, and one sequence without a gap."""
    gaps = history.clone()
    gaps[0, 1, 0] = math.nan
    gaps[0, -1] = math.nan
    gaps[1, 2:4] = math.nan
    return gaps


# --- the distribution ----------------------------------------------------------------------------------------

CASES = {
    **{f"{encoder} encoder": {"encoder": encoder} for encoder in ENCODERS},
    **{f"{encoder} encoder of changes": {"encoder": encoder, "input_changes": True} for encoder in ENCODERS},
    **{distribution: {"observation": distribution} for distribution in OBSERVATIONS},
    **{f"window {window}": {"window": window} for window in (1, 2, 4)},
    "two layers, heads": {"encoder": "transformer", "encoder_layers": 2, "n_heads": 2},
    "positions": {"position_encoding": "sinusoidal"},
    "changes predicted": {"predict_change": True, "covariance": "full"},
    "multinomial": {"resampling": "multinomial"},
    "seldom resampled": {"ess_threshold": 0.3},
}
HISTORIES = {
    "history": sequences(3, 5, 2),
    "a history of one value": sequences(3, 0, 2),
    "a history of two values": sequences(3, 1, 2),
    "gaps": with_gaps(sequences(3, 5, 2)),
}


def model_with(**settings):
    defaults = {"d_model": 4, "d_ff": 5, "n_inputs": 2, "n_targets": 2, "initial_latent_variance": 0.5}
    return make_model(**{**defaults, "initial_observation_variance": 0.3, **settings})


class Recorded:
    """A rollout, and what it is made of: the noise of its steps, and the filter's trajectory that each path goes on."""

    def __init__(self, monkeypatch, model, history, known=None, *, n_paths=5, n_particles=6, horizon=HORIZON, seed=0):
        drawn, draw_noise = [], model.attention.draw_noise

        def remember(*arguments):
            drawn.append(draw_noise(*arguments))
            return drawn[-1]

        assert n_paths != n_particles
        self.known = nothing_known(history, horizon) if known is None else known
        with monkeypatch.context() as patch:
            patch.setattr(model.attention, "draw_noise", remember)
            self.paths, self.parameters = rollout(
                model, model.settings(n_particles), history, self.known, n_paths=n_paths, generator=seeded(seed)
            )
        ahead = [noise for noise in drawn if noise.query.shape[1] == n_paths]
        assert sum(noise.query.shape[2] for noise in ahead) == horizon
        self.ahead = Noise(*(torch.cat(eps, dim=2) for eps in zip(*ahead, strict=True)))
        self.model, self.n_steps = model, history.shape[1] - 1
        # Every trajectory of the filter that a path could go on with: its noise, and what it has seen.
        self.inputs, self.past, self.log_weights = history.unsqueeze(1), None, torch.zeros(len(history), 1)
        if self.n_steps:
            result = model.filter(history, n_particles, seeded(seed))
            self.trajectories, self.log_weights = result.trajectories, result.log_weights[:, :, -1]
            self.past = result.noise.along(result.trajectories)
            self.inputs = history.unsqueeze(1).repeat(1, n_particles, 1, 1)
            if result.completed is not None:
                completed = gather_trajectories(result.completed, result.trajectories)
                self.inputs[:, :, 1:, : model.config.n_targets] = completed

    def replayed(self, one, chosen):
        """Parameters (batch, path, horizon, ...) of paths `one`, if they go on with the trajectories (batch, path)."""
        n_paths = one.shape[1]
        future = torch.cat((one, self.known.unsqueeze(1).expand(-1, n_paths, -1, -1)), dim=-1)
        rows = torch.arange(len(one)).unsqueeze(-1)
        inputs = torch.cat((self.inputs[rows, chosen], future), dim=2)
        noise = self.ahead
        if self.past is not None:
            noise = Noise(
                *(torch.cat((past[rows, chosen], eps), 2) for past, eps in zip(self.past, noise, strict=True))
            )
        noise = Noise(*(eps.flatten(0, 1).unsqueeze(1) for eps in noise))
        parameters = self.model.replay(inputs.flatten(0, 1), noise).parameters
        return parameters[:, 0, self.n_steps :].unflatten(0, one.shape[:2])

    def fits(self):
        """Whether each path is what the replay makes of it after each trajectory, (batch, path, trajectory)."""
        found = []
        for m in range(self.inputs.shape[1]):
            expected = self.replayed(self.paths, torch.full(self.paths.shape[:2], m))
            found.append((self.parameters - expected).abs() <= 1e-9 * expected.abs() + 1e-10)
        return torch.stack([same.flatten(2).all(dim=-1) for same in found], dim=-1)

    def chosen(self):
        """A trajectory (batch, path) that each path goes on with."""
        fits = self.fits()
        assert fits.any(dim=-1).all()
        return fits.int().argmax(dim=-1)


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("case", CASES)
def test_every_path_is_what_the_replay_makes_of_its_noise(monkeypatch, case, history):
    """One of the filter's trajectories and a path as one sequence: all latents rebuilt in parallel are the same."""
    record = Recorded(monkeypatch, model_with(**CASES[case]), HISTORIES[history])
    assert record.fits().any(dim=-1).all()
    assert (record.paths[:, 0] != record.paths[:, 1]).all()


def test_a_path_of_one_horizon_step_is_what_the_replay_makes_of_its_noise(monkeypatch):
    record = Recorded(monkeypatch, model_with(n_heads=2), HISTORIES["history"], horizon=1)
    assert record.fits().any(dim=-1).all()


def test_paths_go_on_with_one_trajectory_and_not_with_any(monkeypatch):
    """Else the tests above would prove nothing about trajectories."""
    record = Recorded(monkeypatch, model_with(ess_threshold=0.0), HISTORIES["history"])
    assert (record.fits().sum(dim=-1) == 1).all()


def test_paths_after_gaps_have_seen_what_their_trajectory_has(monkeypatch):
    model, history = model_with(encoder="gru", ess_threshold=0.0), HISTORIES["gaps"]
    before = history.clone()
    record = Recorded(monkeypatch, model, history)
    assert (record.fits().sum(dim=-1) == 1).all()
    observed = ~history.isnan().unsqueeze(1).expand_as(record.inputs)
    assert torch.equal(record.inputs[observed], history.unsqueeze(1).expand_as(record.inputs)[observed])
    torch.testing.assert_close(history, before, rtol=0, atol=0, equal_nan=True)  # the user's own


def moments(paths):
    """Means, squares and products of neighbouring steps, each path's own."""
    return torch.cat((paths, paths.square(), paths[:, :, 1:] * paths[:, :, :-1]), dim=2).flatten(2)


def assert_same_distribution(one, other, room=LIMIT):
    """Rows are independent runs; paths within a row share their particles."""
    (mean, error), (expected, expected_error) = (mean_and_error(moments(paths).mean(dim=1)) for paths in (one, other))
    allowed = room * (error.square() + expected_error.square()).sqrt()
    difference = (mean - expected).abs()
    assert (difference <= allowed).all(), (difference / allowed).max()


DISTRIBUTION_CASES = {
    **{
        f"{distribution}, {encoder}": {"observation": distribution, "encoder": encoder}
        for distribution in OBSERVATIONS
        for encoder in ("linear", "gru")
    },
    **{encoder: {"encoder": encoder} for encoder in ENCODERS[1:]},
    "changes": {"encoder": "gru", "input_changes": True, "predict_change": True},
    "window 2": {"window": 2},
    "multinomial": {"resampling": "multinomial", "ess_threshold": 0.5},
}


@pytest.mark.parametrize("history", ["history", "a history of one value", "gaps"])
@pytest.mark.parametrize("case", DISTRIBUTION_CASES)
def test_paths_have_the_distribution_of_forecasts(without_shape_checks, case, history):
    """Few particles and a narrow observation noise, so that it matters which trajectories are chosen."""
    model = model_with(**{"initial_observation_variance": 0.05, **DISTRIBUTION_CASES[case]})
    runs, n_paths, n_particles = 400, 8, 12
    past = HISTORIES[history][:1].expand(runs, -1, -1)
    with torch.no_grad():
        paths = roll(model, past, n_paths=n_paths, n_particles=n_particles, seed=1)
    forecast = model.forecast(past, HORIZON, n_paths, generator=2, n_particles=n_particles)
    assert paths.shape == forecast.shape == (runs, n_paths, HORIZON, 2)
    # Squares of a Student-t with 8 degrees have a variance, but their mean is far from Gaussian yet.
    assert_same_distribution(paths, forecast, room=1.5 * LIMIT if "student_t" in case else LIMIT)


@pytest.mark.parametrize("history", ["history", "gaps"])
def test_trajectories_are_chosen_by_the_weights_of_the_last_observation(monkeypatch, history):
    """Systematic resampling gives every trajectory as many paths as its weight says, up to one."""
    model, n_paths = model_with(initial_observation_variance=0.05), 1000
    record = Recorded(monkeypatch, model, HISTORIES[history], n_paths=n_paths, horizon=1)
    fits = record.fits()
    for b in range(len(fits)):
        for m in range(fits.shape[-1]):
            twins = (record.trajectories[b] == record.trajectories[b, m]).all(dim=-1)
            assert torch.equal(fits[b][:, twins].any(dim=-1), fits[b, :, m])
            weight = record.log_weights[b, twins].exp().sum()
            assert abs(fits[b, :, m].sum() - n_paths * weight) <= 1 + 1e-9


def test_the_comparison_of_distributions_sees_trajectories_that_are_chosen_without_weights():
    """In one dimension, and with much latent noise, the last weights matter a lot for what comes next."""
    model = tiny_model(initial_latent_variance=2.0, initial_observation_variance=0.05, spread_covariances=False)
    history = torch.tensor([0.5, 2.0, 2.5], dtype=torch.float64).unsqueeze(-1)
    with torch.no_grad():
        found = roll(model, history.expand(400, -1, -1), n_paths=8, n_particles=200, seed=1)

    def by_brute_force(n_weighted):
        futures, weights = weighted_futures(model, history, HORIZON, 400_000, seed=0, n_weighted=n_weighted)
        rows = np.random.default_rng(1).choice(len(futures), (400, 8), p=weights)
        return torch.from_numpy(futures[rows]).unsqueeze(-1)

    assert_same_distribution(found, by_brute_force(n_weighted=2))
    with pytest.raises(AssertionError):
        assert_same_distribution(found, by_brute_force(n_weighted=1))


def test_paths_of_the_linear_model_have_the_exact_distribution():
    """Window 1, linear read-out: X_{t+1} = A X_t + c + noise, so means and covariances are known."""
    model = linear_model(n_inputs=2)
    history = sequences(1, 3, 2)
    with torch.no_grad():
        paths = roll(model, history, n_paths=40_000, n_particles=10)[0]
    unit = torch.cat((torch.zeros(1, 2), torch.eye(2))).double().view(3, 1, 2).expand(-1, 2, -1)
    responses, noise = (tensor.detach() for tensor in linear_gaussian.distribution(model, unit))
    offset, step = responses[0, 0], (responses[1:, 0] - responses[0, 0]).T
    mean, covariance = history[0, -1], torch.zeros(2, 2).double()
    for ahead in range(HORIZON):
        mean, covariance = step @ mean + offset, step @ covariance @ step.T + noise
        found, error = mean_and_error(paths[:, ahead])
        assert ((found - mean).abs() < LIMIT * error).all()
        centred = paths[:, ahead] - mean
        found, error = mean_and_error(centred.unsqueeze(-1) * centred.unsqueeze(-2))
        assert ((found - covariance).abs() < LIMIT * error).all()


# --- without noise ------------------------------------------------------------------------------------------------


def nearly_without_noise(**settings):
    model = model_with(initial_latent_variance=0.0, spread_covariances=False, **settings)
    with torch.no_grad():
        if settings.get("observation", "gaussian") == "gaussian":
            model.observation.covariance.assign_(1e-18)
        else:
            model.readout.projection.weight[2:] = 0.0
            model.readout.projection.bias[2:] = math.log(1e-9)
    return model


@pytest.mark.parametrize("n_past", [1, 2, 6])
@pytest.mark.parametrize("window", [None, 1, 2, 4])
@pytest.mark.parametrize("predict_change", [False, True])
def test_without_noise_the_path_is_the_deterministic_continuation(window, n_past, predict_change):
    model = nearly_without_noise(window=window, predict_change=predict_change)
    whole = sequences(2, n_past - 1, 2)
    paths = roll(model, whole, n_paths=3, n_particles=4, horizon=5)
    for _ in range(5):
        unseen = whole.new_zeros(2, 1, 2)
        following = torch.from_numpy(deterministic_means(model, torch.cat((whole, unseen), dim=1))[:, -1:])
        whole = torch.cat((whole, following), dim=1)
    for path in range(3):
        torch.testing.assert_close(paths[:, path], whole[:, n_past:], atol=1e-7, rtol=0)


@pytest.mark.parametrize("input_changes", [False, True])
@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_without_noise_the_path_is_what_the_filter_predicts_next(encoder, observation, input_changes):
    model = nearly_without_noise(encoder=encoder, observation=observation, input_changes=input_changes)
    history = sequences(2, 0, 2)
    path = roll(model, history, n_paths=2, horizon=5)[:, 0].detach()
    whole = torch.cat((history, path), dim=1)
    means = model.filter(whole, 1, generator=0).predictive.mean
    torch.testing.assert_close(means, path, atol=1e-6, rtol=0)


# --- known inputs, seeds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ENCODERS)
def test_known_inputs_are_used_at_the_step_they_belong_to(encoder):
    """The input at step h informs step h + 1 and later ones; the last one informs nothing."""
    model = model_with(n_inputs=3, encoder=encoder)
    history = sequences(2, 4, 3)
    known = torch.zeros(2, HORIZON, 1).double()
    plain = roll(model, history, known)
    for step in range(HORIZON):
        changed = known.clone()
        changed[:, step] = 5.0
        differs = (roll(model, history, changed) != plain).any(dim=(0, 1, 3))
        assert differs.tolist() == [ahead > step for ahead in range(HORIZON)]


@pytest.mark.parametrize("n_past", [1, 5])
def test_known_inputs_reach_the_replay_too(monkeypatch, n_past):
    model = model_with(n_inputs=4, encoder="lstm", input_changes=True)
    record = Recorded(monkeypatch, model, sequences(2, n_past - 1, 4), sequences(2, HORIZON - 1, 2, seed=7))
    assert record.fits().any(dim=-1).all()


def test_same_seed_same_paths_and_the_global_state_is_left_alone():
    model, history = model_with(), HISTORIES["gaps"]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = roll(model, history, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(roll(model, history, seed=3), first)
    assert not torch.equal(roll(model, history, seed=4), first)


def test_sequences_of_a_batch_do_not_mix():
    """With one particle and one path there is no choice to make: the first sequence's history matters to it alone."""
    model = model_with(encoder="gru")
    history = sequences(2, 4, 2)
    plain = roll(model, history, n_paths=2, n_particles=1)
    changed = history.clone()
    changed[1] += 1.0
    found = roll(model, changed, n_paths=2, n_particles=1)
    assert torch.equal(found[0], plain[0])
    assert (found[1] != plain[1]).all()


# --- gradients ----------------------------------------------------------------------------------------------------

GRADIENT_CASES = {
    **{f"{encoder} encoder": {"encoder": encoder, "input_changes": encoder == "gru"} for encoder in ENCODERS},
    **{distribution: {"observation": distribution} for distribution in OBSERVATIONS},
    "window 2, full covariances": {"window": 2, "covariance": "full"},
    "window 1, isotropic covariances": {"window": 1, "covariance": "isotropic"},
    "changes predicted, heads": {"predict_change": True, "n_heads": 2},
    "linear read-out": {"readout": "linear"},
}


def directional_derivatives(model, work, step=1e-7):
    """Of `work()` along a random direction of every parameter: by autograd, and by differences.

    Steps are as small as rounding allows: a ReLU should have no kink within.
    """
    parameters = {name: p for name, p in model.gradient_parameters().items() if name != "observation.raw_degrees"}
    directions = {
        name: torch.randn(p.shape, generator=seeded(number), dtype=p.dtype)
        for number, (name, p) in enumerate(parameters.items())
    }
    gradients = torch.autograd.grad(work(), list(parameters.values()), allow_unused=True)
    found, expected = {}, {}
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        found[name] = 0.0 if gradient is None else float((gradient * directions[name]).sum())
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                before = parameter.clone()
                parameter += sign * step * directions[name]
                values.append(float(work()))
                parameter.copy_(before)
        expected[name] = (values[0] - values[1]) / (2 * step)
    return found, expected


def assert_same_derivatives(found, expected):
    for name in expected:
        assert found[name] == pytest.approx(expected[name], rel=2e-5, abs=2e-6), name


@pytest.mark.parametrize("n_past", [1, 5])
@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_gradients_are_those_of_finite_differences_under_common_random_numbers(case, n_past):
    # Never resampled, so that a small change of a parameter cannot change who descends from whom within the history.
    model = model_with(ess_threshold=0.0, **GRADIENT_CASES[case])
    history = sequences(2, n_past - 1, 2)
    direction = torch.randn(2, 4, HORIZON, 2, generator=seeded(5), dtype=torch.float64)
    found, expected = directional_derivatives(
        model, lambda: (roll(model, history, n_paths=4, n_particles=5) * direction).sum()
    )
    assert_same_derivatives(found, expected)
    # Slots of the history are seen by their keys and values, and the path itself adds queries: all have a part in it.
    idle = {name for name, value in expected.items() if abs(value) < 1e-7}
    alone = model.config.window == 1  # a softmax over one slot does not care for its query or key
    assert all(("query" in name or "key" in name) and alone for name in idle), idle


def test_gradients_after_gaps_are_those_of_the_chosen_trajectories(monkeypatch):
    """What the trajectories have seen is a constant, as is which of them were chosen."""
    model, history = model_with(encoder="gru"), HISTORIES["gaps"]
    record = Recorded(monkeypatch, model, history, n_paths=4, n_particles=5)
    chosen = record.chosen()
    eps = model.observation.covariance.whiten(record.paths - record.parameters).detach()

    def by_hand():
        """Paths drawn one step after the other, each from a replay of all that came before."""
        paths = torch.zeros_like(record.paths)
        for ahead in range(HORIZON):
            mean = record.replayed(paths, chosen)[:, :, ahead]
            target = mean + model.observation.covariance.scale(eps[:, :, ahead])
            paths = torch.cat((paths[:, :, :ahead], target.unsqueeze(2), paths[:, :, ahead + 1 :]), dim=2)
        return paths

    torch.testing.assert_close(by_hand(), record.paths)
    direction = torch.randn(3, 4, HORIZON, 2, generator=seeded(5), dtype=torch.float64)
    _, expected = directional_derivatives(model, lambda: (by_hand() * direction).sum())
    found, _ = directional_derivatives(
        model, lambda: (roll(model, history, n_paths=4, n_particles=5) * direction).sum()
    )
    assert_same_derivatives(found, expected)
    assert all(value != 0 for value in expected.values())


def test_the_gradient_of_the_degrees_of_freedom_is_that_of_the_distribution():
    """Draws of a Gamma are differentiable on average only: E X^2 of one step is scale^2 nu / (nu - 2)."""
    model = nearly_without_noise(observation="student_t", readout="linear")
    with torch.no_grad():
        model.readout.projection.weight.zero_()
        model.readout.projection.bias.zero_()
    history = torch.zeros(1, 1, 2).double()
    squares = roll(model, history, n_paths=200_000, horizon=1).square().mean()
    (found,) = torch.autograd.grad(squares, model.observation.raw_degrees)
    nu = model.observation.degrees
    (expected,) = torch.autograd.grad(nu / (nu - 2), model.observation.raw_degrees)
    # -2 / (nu - 2)^2 times the slope of softplus. Each term has a spread of about its size.
    assert float(found) == pytest.approx(float(expected), rel=0.05)


def test_paths_and_gradients_have_the_type_of_the_model():
    model = model_with(encoder="gru", observation="student_t").float()
    paths = roll(model, HISTORIES["gaps"].float())
    assert paths.dtype == torch.float32
    paths.square().sum().backward()
    for name, parameter in model.gradient_parameters().items():
        assert parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name
