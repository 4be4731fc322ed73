"""Forecast paths: the kernel draws what torch draws, under the same noise, and its gradients are those of autograd."""

import dataclasses

import pytest
import torch
from helpers.agreement import assert_same, both, random_case, random_model, seeded
from helpers.models import sequences
from helpers.unequal import unequal

from smc_transformer.inference import compiled, engine
from smc_transformer.inference.filter import filter_state
from smc_transformer.inference.paths import draw_paths, rollout
from smc_transformer.inference.step import begin, spread
from smc_transformer.inference.stream import StreamState
from smc_transformer.nn.attention import Noise
from smc_transformer.nn.streams import Streams

IN_C = ("linear", "gru")
N_PATHS = (1, 7, 8, 9, 20)


def path_case(seed):
    """A model that the kernel knows, sequences (some with gaps), a length of history and a number of paths."""
    case = random_case(seed)
    settings = {**case.settings, "encoder": IN_C[seed % 2], "input_changes": seed % 3 == 0}
    if settings["encoder"] == "gru":
        settings.pop("position_encoding", None)
    model = random_model(seed, training=case.training, **settings)
    x = sequences(case.batch, case.n_steps + 6, settings["n_inputs"], seed=seed)
    if seed % 4 == 1:
        x[:, 2, : settings["n_targets"]] = float("nan")
    return dataclasses.replace(case, settings=settings), model, x, N_PATHS[seed % 5]


def needs_torch(settings, *, gradients):
    full = settings["covariance"] == "full"
    return gradients and (full or settings.get("position_encoding") == "learned")


@pytest.mark.parametrize("seed", range(60))
def test_paths_are_those_of_torch(seed, calls):
    case, model, x, n_paths = path_case(seed)
    n_targets = case.settings["n_targets"]
    history, known = x[:, : 1 if seed % 7 == 0 else -5], x[:, -5:, n_targets:]
    options = {"n_samples": n_paths, "n_particles": case.n_particles, "generator": 3}
    found, expected = both(lambda: model.forecast(history, 5, future_inputs=known, **options))
    assert_same(found, expected, 1e-9)
    assert calls["draw_paths"] == 1


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("encoder", IN_C)
@pytest.mark.parametrize(("n_targets", "n_paths", "batch"), [(1, 40, 3), (2, 13, 2), (3, 1, 1)])
def test_counts_are_those_of_one_step_after_the_other(monkeypatch, calls, encoder, changes, n_targets, n_paths, batch):
    """With streams of the sequences. Rounding of a large rate, by 1e-7 of it, may turn its count by one."""
    settings = {"n_inputs": 4, "n_targets": n_targets, "encoder": encoder, "input_changes": changes, "n_particles": 6}
    model = random_model(1, observation="negative_binomial", predict_change=changes, **settings).float()
    x = sequences(batch, 9, 4).float()
    x[..., :n_targets] = x[..., :n_targets].exp().round()
    streams = Streams(torch.arange(batch) + 5, torch.arange(batch) + 2)

    @torch.no_grad()
    def work():
        generator = streams.at(streams.steps)
        state = filter_state(model, x[:, :5], model.inference, generator)
        start, _ = spread(model, model.inference, state, n_paths, 4, generator)
        return draw_paths(model, start, x[:, 5:, n_targets:], generator)

    made = work()
    assert calls["draw_paths"] == 1
    monkeypatch.setattr(engine, "can_draw_paths", lambda *_: False)
    expected = work()
    assert calls["draw_paths"] == 1
    assert (made.targets != expected.targets).sum() <= max(1, 0.05 * made.targets.numel())
    assert ((made.targets - expected.targets).abs() <= 1 + 0.01 * expected.targets).all()
    assert_same(made.parameters[:, :, 0], expected.parameters[:, :, 0], 1e-4)
    assert made.targets.amax() > 1


def test_counts_go_step_by_step_where_torch_draws_them(calls):
    model = random_model(1, observation="negative_binomial", n_inputs=2, n_targets=1).float()
    x = sequences(2, 6, 2).float().abs().round()
    model.forecast(x[:, :5], 2, 3, future_inputs=x[:, 5:, 1:], generator=4)
    assert calls["draw_paths"] == 0
    with torch.no_grad():
        (reason,) = engine.explain_paths(model, x)
        streams = Streams(torch.arange(2), torch.arange(2))
        assert engine.explain_paths(model, x, streams) == []
    assert "torch's generator" in reason
    assert any("no gradient" in reason for reason in engine.explain_paths(model, x, streams))


@pytest.mark.parametrize("encoder", IN_C)
@pytest.mark.parametrize(("d_model", "n_paths", "batch"), [(5, 13, 3), (32, 40, 2), (8, 7, 9), (3, 1, 1)])
def test_noise_that_c_makes_of_seeds_is_the_noise_it_is_given(monkeypatch, calls, encoder, d_model, n_paths, batch):
    """In float32, where the noise is C's: the same paths to the bit, and no noise that is held."""
    settings = {"d_model": d_model, "n_heads": 1, "n_inputs": 3, "n_targets": 2, "encoder": encoder, "n_particles": 6}
    model = random_model(1, observation="student_t", **settings).float()
    x = sequences(batch, 9, 3).float()

    def work():
        return model.forecast(x[:, :5], 5, n_paths, future_inputs=x[:, 5:, 2:], generator=4)

    made = work()
    n_fills = calls["fill_normal"]
    assert calls["fill_normal_rows"] == 0
    monkeypatch.setattr(engine, "can_seed_paths", lambda *_: False)
    given = work()
    assert torch.equal(made, given)
    assert calls["fill_normal"] == 2 * n_fills  # those of the filter
    assert calls["fill_normal_rows"] == 1  # the noise of the five steps


def test_noise_is_not_made_of_seeds_where_c_could_not(calls):
    like = torch.zeros(1)
    model = random_model(0, observation="gaussian").float()
    with torch.no_grad():
        assert engine.can_seed_paths(model, like)
        assert not engine.can_seed_paths(model, like.double())
        assert not engine.can_seed_paths(random_model(0, covariance="full").float(), like)
    assert not engine.can_seed_paths(model, like)  # gradients are wanted


@pytest.mark.parametrize("seed", range(60))
def test_gradients_are_those_of_autograd(seed, calls):
    case, model, x, n_paths = path_case(seed)
    n_targets = case.settings["n_targets"]
    history, known = x[:, : 1 if seed % 7 == 0 else -5], x[:, -5:, n_targets:]
    settings = model.settings(case.n_particles)

    def work():
        model.zero_grad()
        paths = rollout(model, settings, history, known, n_paths=n_paths, generator=seeded(1))
        weights = torch.linspace(0.3, 1.0, paths.targets.numel(), dtype=torch.float64).view_as(paths.targets)
        (weights * paths.targets.sin()).sum().backward()
        gradients = {name: part.grad for name, part in model.named_parameters() if part.grad is not None}
        return paths.targets.detach(), paths.parameters.detach(), gradients

    (targets, parameters, gradients), (targets_2, parameters_2, gradients_2) = both(work)
    assert_same(targets, targets_2, 1e-9)
    assert_same(parameters, parameters_2, 1e-9)
    assert set(gradients) == set(gradients_2)
    for name, expected in gradients_2.items():
        assert_same(gradients[name], expected, 1e-7, name)
    assert calls["draw_paths"] == (0 if needs_torch(case.settings, gradients=True) else 2)


def test_the_cases_have_all_that_the_kernel_knows():
    cases = [path_case(seed)[0].settings for seed in range(60)]
    seen = {(one["encoder"], one["input_changes"]) for one in cases}
    assert seen == {(encoder, changes) for encoder in IN_C for changes in (False, True)}
    assert {one["observation"] for one in cases} == {"gaussian", "heteroscedastic", "student_t"}
    assert {one["readout"] for one in cases} == {"linear", "transformer"}
    assert {one.get("position_encoding") for one in cases} == {None, "sinusoidal", "learned"}
    assert sum(not needs_torch(one, gradients=True) for one in cases) > 30


@pytest.mark.parametrize("encoder", IN_C)
def test_gradients_in_float32_are_close_to_those_in_float64(encoder, calls):
    model = random_model(d_model=12, d_ff=9, encoder=encoder, window=5, observation="student_t", predict_change=True)
    x, noise = sequences(4, 20), Noise(*torch.randn(4, 4, 9, 8, 12, generator=seeded(1), dtype=torch.float64))
    draws = torch.randn(4, 9, 8, 1, generator=seeded(2), dtype=torch.float64)

    def gradients(dtype):
        model.to(dtype).zero_grad(set_to_none=True)
        given = [part.to(dtype) for part in (x, *noise, draws)]
        state = begin(model, given[0][:, 0], 9, 0)
        paths, _ = compiled.run_paths(model, state, given[0][:, 12:20, 1:], Noise(*given[1:5]), given[5])
        paths.square().mean().backward()
        return {name: part.grad.double().clone() for name, part in model.named_parameters() if part.grad is not None}

    expected, found = gradients(torch.float64), gradients(torch.float32)
    for name, part in expected.items():
        assert_same(found[name], part, 1e-4, name)
    assert calls["draw_paths"] == 4


def test_any_number_of_threads_finds_the_same_to_the_bit(calls, set_threads):
    model = random_model(d_model=8, d_ff=5, encoder="gru", window=4, input_changes=True, observation="student_t")
    x, found = sequences(7, 15), []
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        model.zero_grad(set_to_none=True)
        paths = rollout(model, model.settings(5), x[:, :10], x[:, 10:, 1:], n_paths=11, generator=seeded(1))
        paths.targets.square().sum().backward()
        found.append([paths.targets.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))
    assert calls.threads >= {1, 2, 3}


def test_paths_of_a_stream_that_has_predicted_begin_with_its_prediction(calls):
    """Its particles have moved already, so torch takes the steps; the paths agree with those without kernels."""
    model, x = random_model(d_model=4, d_ff=5, encoder="gru", window=3), sequences(2, 8)

    def work():
        state = StreamState(model, 2, model.settings(6), seeded(0))
        for step in range(9):
            state.observe(x[:, step])
        return state.sample_paths(x[:, :4, 1:], 10, seeded(1))

    found, expected = both(work)
    assert_same(found, expected, 1e-9)
    assert calls["draw_paths"] == 0


@pytest.mark.parametrize("window", [None, 1, 2, 5, 9, 10, 11, 50])
@pytest.mark.parametrize("n_past", [1, 2, 12])
def test_windows_reach_from_the_paths_into_the_past_of_their_particles(window, n_past, calls):
    """Shorter and longer than the past, the horizon (10), and both together."""
    model = random_model(d_model=4, d_ff=5, n_heads=2, window=window, encoder="gru", initial_latent_variance=1.0)
    paths, expected = both(lambda: model.forecast(sequences(2, n_past - 1), 10, 11, generator=4, n_particles=7))
    assert_same(paths, expected)
    assert calls["draw_paths"] == 1


@pytest.mark.parametrize("window", [None, 1, 3, 8, 9, 20])
@pytest.mark.parametrize("horizon", [1, 12])
@pytest.mark.parametrize("gap_at", [None, 4])
def test_sequences_side_by_side_have_pasts_of_their_own_lengths(window, horizon, gap_at, calls):
    """Shorter and longer than the window, in one call, so that one sequence follows another in a thread's memory."""
    model = random_model(d_model=6, d_ff=5, n_heads=2, window=window, encoder="gru", initial_latent_variance=1.0)

    def work():
        state = unequal(model, model.settings(6), (30, 1, 8, 2, 21), 30, gap_at=gap_at)
        start, _ = spread(model, model.settings(6), state, 11, horizon, seeded(1))
        return draw_paths(model, start, sequences(5, horizon - 1, 0), seeded(2))

    with torch.no_grad():
        found, expected = both(work)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
    assert calls["draw_paths"] == 1


@pytest.mark.parametrize("encoder", ["lstm", "transformer", "convolution"])
def test_other_encoders_go_step_by_step_and_say_so(encoder, calls):
    model, x = random_model(d_model=4, d_ff=5, encoder=encoder), sequences(2, 8)
    assert engine.explain_paths(model, x) == ["paths step by step: the encoder has no kernel form"]
    found, expected = both(lambda: model.forecast(x, 3, n_samples=6, generator=0))
    assert_same(found, expected, 1e-9)
    assert calls["draw_paths"] == 0


def test_an_encoder_that_a_user_has_changed_is_not_overlooked(calls):
    model, x = random_model(d_model=4, d_ff=5, encoder="gru"), sequences(2, 8)
    model.encoder.register_forward_hook(lambda module, inputs, output: output)
    assert engine.explain_paths(model, x) == ["paths step by step: a hook is registered on the encoder"]
    other = random_model(d_model=4, d_ff=5, encoder="linear")
    other.encoder.__class__ = type("Other", (type(other.encoder),), {})
    assert engine.explain_paths(other, x) == ["paths step by step: the encoder has no kernel form"]
    more_layers = random_model(d_model=4, d_ff=5, encoder="gru", encoder_layers=2)
    assert engine.explain_paths(more_layers, x) == ["paths step by step: the encoder has no kernel form"]
