"""The kernel of one step: streams and forecasts have the numbers that torch gives them.

In float64, where both draw the same noise; in float32 the kernels have a generator of their own.
"""

import pytest
import torch
from helpers.agreement import MASKED, ROUNDING, assert_same, both, random_model, seeded, step_case
from helpers.models import sequences
from helpers.unequal import step, unequal, walk
from helpers.user_modules import OwnReadout

from smc_transformer.kernels import disabled
from smc_transformer.nn.attention import Noise
from smc_transformer.smc import WeightCollapseError

SINGLE = 2500 * torch.finfo(torch.float32).eps
"""Allowed in float32, as in the tests of the filter."""


# --- streams ------------------------------------------------------------------------------------------------


def follow(model, x, n_particles, seed=3, noise=None):
    """What each observation of a stream meant, and the state at the end."""
    state = model.init_state(len(x), n_particles, generator=seed)
    seen = {"log_density": [], "pit": [], "ess": [], "parameters": [], "log_weights": []}
    for t in range(x.shape[1]):
        if noise is None:
            state, info = model.observe(state, x[:, t])
        else:
            info = state.observe(x[:, t], noise=noise.at(t))
        predictive = model.predictive(state)
        for name in ("log_density", "pit", "ess"):
            seen[name].append(getattr(info, name))
        for name in ("parameters", "log_weights"):
            seen[name].append(getattr(predictive, name))
    return {name: torch.stack(values) for name, values in seen.items()}, state


def future(model, batch, horizon):
    n_known = model.config.n_inputs - model.config.n_targets
    return sequences(batch, horizon - 1, n_known, seed=9) if n_known else None


def assert_same_stream(seen, expected, **options):
    for name in expected:
        assert_same(seen[name], expected[name], name=name, **options)


@pytest.mark.parametrize("seed", range(25))
def test_a_stream_is_followed_and_continued_as_torch_does_it(seed, calls):
    model, x, case = step_case(seed)

    def follow_and_forecast():
        seen, state = follow(model, x, case.n_particles)
        return seen, state, model.forecast(state, 5, 13, future(model, len(x), 5), generator=4)

    (seen, state, paths), (expected, other, expected_paths) = both(follow_and_forecast)
    assert_same_stream(seen, expected)
    assert_same(paths, expected_paths)
    assert torch.equal(state.generator.get_state(), other.generator.get_state())
    assert calls == {"mutate_particles": x.shape[1] + 4, "inherit_trajectories": x.shape[1] - 1}


@pytest.mark.parametrize("window", [None, 1, 2, 5, 16, 17])
def test_the_ring_of_slots_goes_round_and_the_growing_table_grows(window, calls):
    model = random_model(d_model=6, d_ff=5, n_heads=2, window=window, ess_threshold=0.5)
    x = sequences(2, 39)
    (seen, state), (expected, other) = both(lambda: follow(model, x, 9))
    assert_same_stream(seen, expected)
    assert state.particles.capacity == (window or 64)  # 16 at first, and doubled twice
    for name in ("keys", "values"):
        held = slice(0, min(int(state.particles.n_slots[0]), state.particles.capacity))
        one, another = getattr(state.particles, name), getattr(other.particles, name)
        assert_same(one[:, :, held], another[:, :, held], name=name)
    assert calls["mutate_particles"] == 40


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_noise_of_a_step_may_lie_in_memory_as_it_likes(covariance, calls):
    model, x = random_model(d_model=6, d_ff=5, covariance=covariance), sequences(2, 9)
    noise = Noise(*(eps.contiguous() for eps in model.attention.draw_noise(2, 9, 10, seeded(1))))
    expected, _ = follow(model, x, 9, noise=noise)
    scattered = [
        Noise(*(eps.transpose(1, 2).contiguous().transpose(1, 2) for eps in noise)),  # one step lies together
        Noise(*(eps.mT.contiguous().mT for eps in noise)),  # the numbers of a particle lie apart
        noise._replace(value=noise.value.transpose(1, 2).contiguous().transpose(1, 2)),  # one unlike the others
    ]
    for other in scattered:
        (seen, _), (by_torch, _) = both(lambda: follow(model, x, 9, noise=other))  # noqa: B023
        assert_same_stream(seen, expected)
        assert_same_stream(seen, by_torch)
    assert calls["mutate_particles"] == 40


@pytest.mark.parametrize("window", [None, 4])
def test_a_stream_may_change_over_between_kernels_and_torch(window, calls):
    """Both leave keys, values and trajectories as the other expects them."""
    model, x = random_model(d_model=6, d_ff=5, window=window), sequences(2, 25)
    with disabled():
        expected, _ = follow(model, x, 9)
    state, densities = model.init_state(2, 9, generator=3), []
    for t in range(26):
        if t // 3 % 2:
            with disabled():
                state, info = model.observe(state, x[:, t])
        else:
            state, info = model.observe(state, x[:, t])
        densities.append(info.log_density)
    assert_same(torch.stack(densities), expected["log_density"])
    assert calls["mutate_particles"] == 14


def test_a_read_out_of_ones_own_in_a_stream(calls):
    model, x = random_model(d_model=5, d_ff=4, window=3, predict_change=True), sequences(2, 9)
    model.readout = OwnReadout(5, 4, 1).double()
    (seen, _), (expected, _) = both(lambda: follow(model, x, 9))
    assert_same_stream(seen, expected)
    assert calls["mutate_particles"] == 10


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(("d_model", "n_heads", "d_ff"), [(5, 1, 7), (20, 4, 33), (33, 1, 40)])
def test_a_float32_stream_under_given_noise(window, d_model, n_heads, d_ff, calls):
    """Without resampling, so that no parent can change by rounding."""
    settings = {"d_model": d_model, "n_heads": n_heads, "d_ff": d_ff, "window": window}
    model, x = random_model(ess_threshold=0.0, **settings).float(), sequences(3, 19).float()
    noise = Noise(*torch.randn(4, 3, 11, 20, d_model, generator=seeded(1)))
    (seen, _), (expected, _) = both(lambda: follow(model, x, 11, noise=noise))
    assert_same_stream(seen, expected, rounding=SINGLE)
    assert calls["mutate_particles"] == 20


def test_any_number_of_threads_follows_a_stream_alike(calls, set_threads):
    model, x = random_model(d_model=6, d_ff=5), sequences(3, 9)
    found = []
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        found.append((follow(model, x, 11)[0], model.forecast(x, 4, n_samples=13, generator=2)))
    for seen, paths in found[1:]:
        assert torch.equal(paths, found[0][1])
        for name, expected in found[0][0].items():
            assert torch.equal(seen[name].nan_to_num(7.0), expected.nan_to_num(7.0)), name
    assert calls.threads == {1, 2, 3}


def test_a_collapse_in_a_stream_is_reported_as_torch_reports_it(calls):
    model, x = random_model(d_model=4, d_ff=5), sequences(3, 9)
    x[1, 6] = 1e200

    def collapse():
        with pytest.raises(WeightCollapseError) as caught:
            follow(model, x, 9)
        return caught.value.sequence, caught.value.step

    place, expected = both(collapse)
    assert place == expected == (1, 6)
    assert calls["mutate_particles"] == 6


@pytest.mark.parametrize("gap_at", [None, 2])
@pytest.mark.parametrize(("window", "capacity", "n_heads"), [(4, 4, 1), (4, 40, 2), (20, 20, 1), (None, 40, 1)])
def test_sequences_that_have_seen_more_or_less_take_steps_together(window, capacity, n_heads, gap_at, calls):
    settings = {"d_model": 6, "d_ff": 5, "n_heads": n_heads, "encoder": "gru", "ess_threshold": 0.9}
    model, lengths = random_model(window=window, **settings), (1, 9, 3, 5, 25)
    x = sequences(len(lengths), 7, seed=99)

    def steps_and_paths():
        state = unequal(model, model.settings(6), lengths, capacity, gap_at=gap_at)
        noise = model.attention.draw_noise(len(lengths), 6, 8, seeded(1))
        steps = [step(model, model.settings(6), state, x[:, number], noise.at(number)) for number in range(8)]
        return (
            *map(torch.stack, zip(*steps, strict=True)),
            state.log_weights,
            walk(model, model.settings(6), state, 5, 6)[0],
        )

    found, expected = both(steps_and_paths)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
    assert calls["mutate_particles"] == sum(lengths) - len(lengths) + 8 + 6


# --- forecasts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_a_forecast_from_a_history_is_that_of_torch(seed, calls):
    model, x, case = step_case(seed)
    horizon = 1 if seed % 4 == 0 else 6

    def forecast():
        known = future(model, len(x), horizon)
        return model.forecast(x, horizon, 13, known, generator=4, n_particles=case.n_particles)

    paths, expected = both(forecast)
    assert_same(paths, expected, MASKED if x.isnan().any() else ROUNDING)
    elliptical, in_c = seed % 5 < 3, case.settings["encoder"] in ("linear", "gru")
    whole_history = not x.isnan().any() or (elliptical and in_c)
    whole_paths = elliptical and in_c
    assert calls["particle_filter"] == whole_history
    assert calls["draw_paths"] == whole_paths
    assert calls["mutate_particles"] == (0 if whole_history else x.shape[1] - 1) + (0 if whole_paths else horizon)


@pytest.mark.parametrize("window", [None, 1, 2, 5, 9, 10, 11, 50])
@pytest.mark.parametrize("n_past", [1, 2, 12])
def test_windows_reach_from_the_paths_into_the_past_of_their_particles(window, n_past, calls):
    """Shorter and longer than the past, the horizon (10), and both together; from a history and from a stream."""
    model = random_model(d_model=4, d_ff=5, n_heads=2, window=window, encoder="lstm", initial_latent_variance=1.0)
    x = sequences(2, n_past - 1)
    paths, expected = both(lambda: model.forecast(x, 10, 11, generator=4, n_particles=7))
    assert_same(paths, expected)
    assert calls["mutate_particles"] == 10
    paths, expected = both(lambda: model.forecast(follow(model, x, 7)[1], 11, 11, generator=4))
    assert_same(paths, expected)
    assert calls["mutate_particles"] == 10 + n_past + 10


@pytest.mark.parametrize("window", [None, 4])
def test_a_float32_forecast_under_the_same_noise(window, calls, monkeypatch):
    """With torch's noise for both; the seeds are such that rounding changes nobody's parent."""
    monkeypatch.setattr("smc_transformer.nn.noise.in_c", lambda reasons: False)
    monkeypatch.setattr("smc_transformer.inference.engine.explain_draws", lambda like: ["torch draws for both"])
    model = random_model(d_model=20, d_ff=7, n_heads=4, window=window).float()
    x = sequences(3, 12).float()
    paths, expected = both(lambda: model.forecast(x, 6, 11, generator=4, n_particles=7))
    assert_same(paths, expected, SINGLE)
    assert calls == {"particle_filter": 1, "draw_paths": 1}


def test_a_read_out_of_ones_own_in_a_forecast(calls):
    model, x = random_model(d_model=5, d_ff=4, window=3, predict_change=True), sequences(2, 9)
    model.readout = OwnReadout(5, 4, 1).double()
    paths, expected = both(lambda: model.forecast(x, 5, 11, generator=4))
    assert_same(paths, expected)
    assert calls["mutate_particles"] == 9 + 5
