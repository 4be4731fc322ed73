"""Differentiable paths: the distribution of `forecast`, and the gradient of what was drawn."""

import math

import pytest
import torch
from helpers.models import linear_model, make_model, mean_and_error, sequences, tiny_model
from helpers.oracles import linear_gaussian
from helpers.oracles.deterministic import deterministic_means

from smc_transformer.inference import rollout as rollout_module
from smc_transformer.inference.filter import particle_filter
from smc_transformer.inference.rollout import rollout
from smc_transformer.nn import Noise
from smc_transformer.smc import gather_trajectories, trace_trajectories, uniform_log_weights

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
    return rollout(model, history, known, n_paths=n_paths, n_particles=n_particles, generator=seeded(seed)).paths


def with_gaps(history):
    """Some targets missing: single coordinates, whole steps, the last step, and one sequence without a gap."""
    gaps = history.clone()
    gaps[0, 1, 0] = math.nan
    gaps[0, -1] = math.nan
    gaps[1, 2:4] = math.nan
    return gaps


# --- the distribution
# -----------------------------------------------------------------------------------------------------

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
    """A rollout, and all that it drew: the trajectories it descends from, its noise, and its parameters."""

    def __init__(self, monkeypatch, model, history, known=None, **options):
        self.noise, self.parameters, self.chosen = [], [], None
        draw, read, choose = model.attention.draw_noise, model.read_out, rollout_module._chosen_trajectories

        def remember_noise(*arguments):
            self.noise.append(draw(*arguments))
            return self.noise[-1]

        def remember_parameters(*arguments):
            self.parameters.append(read(*arguments))
            return self.parameters[-1]

        def remember_trajectories(*arguments):
            self.chosen = choose(*arguments)
            self.noise.clear()  # those of the filter are in the trajectories
            self.parameters.clear()
            return self.chosen

        with monkeypatch.context() as patch:
            patch.setattr(model.attention, "draw_noise", remember_noise)
            patch.setattr(model, "read_out", remember_parameters)
            patch.setattr(rollout_module, "_chosen_trajectories", remember_trajectories)
            self.paths = roll(model, history, known, **options)
        self.n_steps = history.shape[1] - 1
        self.history = history.unsqueeze(1) if self.chosen is None else self.chosen[1]
        self.known = nothing_known(history, self.paths.shape[2]) if known is None else known

    def whole_noise(self):
        """(batch, path, time, d_model) of history and horizon."""
        ahead = Noise(*(torch.stack(eps, dim=2) for eps in zip(*(n.at(0) for n in self.noise), strict=True)))
        if self.chosen is None:
            return ahead
        # Slots out of the window have no noise here: any will do.
        missing = self.n_steps - self.chosen[0].key.shape[2]
        past = [torch.nn.functional.pad(eps, (0, 0, missing, 0), value=9.0) for eps in self.chosen[0]]
        return Noise(*(torch.cat(parts, dim=2) for parts in zip(past, ahead, strict=True)))

    def whole_inputs(self):
        """(batch, path, time + 1, n_inputs): the history as the path has seen it, then the path itself."""
        n_paths = self.paths.shape[1]
        future = torch.cat((self.paths, self.known.unsqueeze(1).expand(-1, n_paths, -1, -1)), dim=-1)
        return torch.cat((self.history.expand(-1, n_paths, -1, -1), future), dim=2)


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("case", CASES)
def test_every_path_is_what_the_replay_makes_of_its_noise(monkeypatch, case, history):
    """History and path as one sequence, its latents rebuilt in parallel: the distribution of every step is the same."""
    model = model_with(**CASES[case])
    record = Recorded(monkeypatch, model, HISTORIES[history])
    rows = record.whole_inputs().flatten(0, 1)
    noise = Noise(*(eps.flatten(0, 1).unsqueeze(1) for eps in record.whole_noise()))
    expected = model.replay(rows, noise).parameters[:, 0, record.n_steps :].unflatten(0, record.paths.shape[:2])
    torch.testing.assert_close(torch.stack(record.parameters, dim=2), expected, rtol=1e-9, atol=1e-10)
    assert (record.paths[:, 0] != record.paths[:, 1]).all()


def test_a_path_of_one_horizon_step_is_what_the_replay_makes_of_its_noise(monkeypatch):
    model = model_with(n_heads=2)
    record = Recorded(monkeypatch, model, HISTORIES["history"], horizon=1)
    rows, noise = record.whole_inputs().flatten(0, 1), record.whole_noise()
    noise = Noise(*(eps.flatten(0, 1).unsqueeze(1) for eps in noise))
    expected = model.replay(rows, noise).parameters[:, 0, -1].unflatten(0, record.paths.shape[:2])
    torch.testing.assert_close(record.parameters[0], expected, rtol=1e-9, atol=1e-10)


def test_paths_in_a_batch_with_gaps_see_what_was_observed(monkeypatch):
    model = model_with(encoder="gru")
    history = HISTORIES["gaps"]
    seen = Recorded(monkeypatch, model, history).history
    observed = ~history.isnan().unsqueeze(1).expand_as(seen)
    assert torch.equal(seen[observed], history.unsqueeze(1).expand_as(seen)[observed])
    assert seen.isfinite().all()
    assert history.isnan().any()  # what the user gave is left as it was


def moments(paths):
    """Means, squares and products of neighbouring steps, each path's own."""
    return torch.cat((paths, paths.square(), paths[:, :, 1:] * paths[:, :, :-1]), dim=2).flatten(2)


def assert_same_distribution(one, other, room=LIMIT):
    """Rows are independent runs; paths within a row share their particles."""
    (mean, error), (expected, expected_error) = (mean_and_error(moments(paths).mean(dim=1)) for paths in (one, other))
    allowed = room * (error.square() + expected_error.square()).sqrt()
    difference = (mean - expected).abs()
    assert (difference <= allowed).all(), (difference / allowed).max()


LAW_CASES = {
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
@pytest.mark.parametrize("case", LAW_CASES)
def test_paths_have_the_distribution_of_forecasts(without_shape_checks, case, history):
    """Few particles and a narrow observation noise, so that it matters which trajectories are chosen."""
    model = model_with(**{"initial_observation_variance": 0.05, **LAW_CASES[case]})
    runs, n_paths, n_particles = 400, 8, 12
    past = HISTORIES[history][:1].expand(runs, -1, -1)
    with torch.no_grad():
        paths = roll(model, past, n_paths=n_paths, n_particles=n_particles, seed=1)
    forecast = model.forecast(past, HORIZON, n_paths, generator=2, n_particles=n_particles)
    assert paths.shape == forecast.shape == (runs, n_paths, HORIZON, 2)
    # Squares of a Student-t with 8 degrees have a variance, but their mean is far from Gaussian yet.
    assert_same_distribution(paths, forecast, room=1.5 * LIMIT if "student_t" in case else LIMIT)


@pytest.mark.parametrize("history", ["history", "gaps"])
def test_trajectories_are_chosen_by_the_weights_of_the_last_observation(history):
    """Systematic resampling gives every trajectory as many paths as its weight says, up to one."""
    model, past = model_with(initial_observation_variance=0.05), HISTORIES[history]
    n_paths, n_particles = 1000, 6
    noise, inputs = rollout_module._chosen_trajectories(model, past, n_paths, n_particles, seeded(1))
    result = particle_filter(model, past, n_particles, seeded(1))
    trajectories = trace_trajectories(result.ancestors)
    for b in range(len(past)):
        for m in range(n_particles):
            own = Noise(*(gather_trajectories(eps, trajectories)[b, m] for eps in result.noise))
            same = torch.ones(n_paths, dtype=torch.bool)
            for found, expected in zip(noise, own, strict=True):
                same &= (found[b] == expected).all(dim=-1).all(dim=-1)
            twins = (trajectories[b] == trajectories[b, m]).all(dim=-1)
            weight = result.log_weights[b, twins, -1].exp().sum()
            assert abs(same.sum() - n_paths * weight) <= 1 + 1e-9
            if result.completed is not None:
                assert (inputs[b, same, 1:] == gather_trajectories(result.completed, trajectories)[b, m]).all()


def test_the_comparison_of_distributions_sees_trajectories_that_are_chosen_without_weights(monkeypatch):
    """In one dimension, and with much latent noise, the last weights matter a lot for what comes next."""
    model = tiny_model(initial_latent_variance=2.0, initial_observation_variance=0.05, spread_covariances=False)
    past = torch.tensor([[0.5, 2.0, 2.5]], dtype=torch.float64).unsqueeze(-1).expand(400, -1, -1)
    forecast = model.forecast(past, HORIZON, 8, generator=2, n_particles=12)

    def paths():
        with torch.no_grad():
            return roll(model, past, n_paths=8, n_particles=12, seed=1)

    assert_same_distribution(paths(), forecast)
    honest = rollout_module.RESAMPLERS["systematic"]
    equal = {"systematic": lambda weights, *rest: honest(uniform_log_weights(weights), *rest)}
    monkeypatch.setattr(rollout_module, "RESAMPLERS", equal)
    with pytest.raises(AssertionError):
        assert_same_distribution(paths(), forecast)


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
    history = whole.clone()
    with torch.no_grad():
        # The filter would find the noise too small for its history: its trajectories are all the same anyway.
        model.observation.covariance.assign_(1.0)
        trajectories = rollout_module._chosen_trajectories(model, history, 3, 4, seeded(0)) if n_past > 1 else None
        model.observation.covariance.assign_(1e-18)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout_module, "_chosen_trajectories", lambda *arguments: trajectories)
        paths = roll(model, history, n_paths=3, horizon=5)
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
    rows = record.whole_inputs().flatten(0, 1)
    noise = Noise(*(eps.flatten(0, 1).unsqueeze(1) for eps in record.whole_noise()))
    expected = model.replay(rows, noise).parameters[:, 0, n_past - 1 :].unflatten(0, record.paths.shape[:2])
    torch.testing.assert_close(torch.stack(record.parameters, dim=2), expected, rtol=1e-9, atol=1e-10)


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
    model = model_with(encoder="gru")
    history = HISTORIES["gaps"]
    chosen = rollout_module._chosen_trajectories(model, history, 4, 5, seeded(1))
    monkeypatch.setattr(rollout_module, "_chosen_trajectories", lambda *arguments: chosen)
    direction = torch.randn(3, 4, HORIZON, 2, generator=seeded(5), dtype=torch.float64)
    found, expected = directional_derivatives(model, lambda: (roll(model, history, n_paths=4) * direction).sum())
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
