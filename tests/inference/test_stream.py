"""Streams: the same numbers as the filter over whole sequences, one observation at a time, in constant memory."""

import pytest
import torch
from helpers.given_noise import filter_under, stream_under
from helpers.models import make_model, mean_and_error, sequences

pytestmark = pytest.mark.usefixtures("drawn_by_turns")

NAN = float("nan")


@pytest.mark.parametrize("window", [None, 1, 3, 40])
@pytest.mark.parametrize("encoder", ["linear", "gru", "transformer", "convolution"])
@pytest.mark.parametrize("ess_threshold", [0.5, 1.0])
@pytest.mark.parametrize("gaps", [False, True])
def test_same_noise_same_numbers_as_the_filter_over_whole_sequences(window, encoder, ess_threshold, gaps):
    model = make_model(
        n_inputs=2,
        n_targets=2,
        d_model=4,
        d_ff=4,
        window=window,
        encoder=encoder,
        ess_threshold=ess_threshold,
        position_encoding="sinusoidal",
        initial_observation_variance=0.2,
    )
    x = sequences(3, 20, 2)
    if gaps:
        x[:, 4] = NAN
        x[1, 9:12, 0] = NAN
    n_particles = 6
    noise = model.attention.draw_noise(3, n_particles, 20, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    result = filter_under(noise, model, x, generator)
    state, infos = stream_under(noise, model, x, seed=2)
    log_density = torch.stack([info.log_density for info in infos[1:]], dim=-1)
    torch.testing.assert_close(log_density, result.log_increments)
    torch.testing.assert_close(torch.stack([info.ess for info in infos[1:]], dim=-1), result.ess)
    pit = torch.stack([info.pit for info in infos[1:]], dim=1)
    torch.testing.assert_close(pit, result.predictive.cdf(x[:, 1:]), equal_nan=True)
    assert state.n_observed == 21
    assert result.resampled.any()  # else nothing was proven about inheritance


def test_memory_does_not_grow_with_a_window():
    model = make_model(d_model=3, window=5)
    state = model.init_state(1, 4, generator=0)
    sizes = set()
    for t in range(60):
        state, _ = model.observe(state, sequences(1, 0, seed=t)[:, 0])
        sizes.add(sum(tensor.numel() for tensor in (state.particles.keys, state.particles.trajectories)))
    assert len(sizes) == 1


def test_memory_grows_as_needed_without_a_window():
    model = make_model(d_model=3)
    state = model.init_state(2, 4, generator=0)
    x = sequences(2, 50)
    for t in range(51):
        state, info = model.observe(state, x[:, t])
        assert info.log_density.isfinite().all()
    assert state.particles.n_slots.tolist() == [51, 51]


def test_predictive_is_the_distribution_that_the_next_observation_is_judged_by():
    model = make_model(d_model=3, window=2)
    x = sequences(2, 8)
    state = model.init_state(2, 5, generator=0)
    for t in range(9):
        if t > 0:
            predictive = model.predictive(state)
            expected, pit = predictive.log_prob(x[:, None, t])[:, 0], predictive.cdf(x[:, None, t])[:, 0]
        state, info = model.observe(state, x[:, t])
        if t > 0:
            torch.testing.assert_close(info.log_density, expected)
            torch.testing.assert_close(info.pit, pit)
    assert not torch.equal(model.predictive(state).mean, predictive.mean)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("encoder", ["linear", "lstm"])
def test_forecast_from_a_state_has_the_distribution_of_a_forecast_from_the_history(window, encoder):
    model = make_model(d_model=3, window=window, encoder=encoder, initial_latent_variance=0.5)
    history = sequences(1, 6).expand(300, -1, -1)
    state = model.init_state(300, 100, generator=0)
    for t in range(7):
        state, _ = model.observe(state, history[:, t])
    position, weights = state.n_observed, state.particles.log_weights.clone()
    from_state = model.forecast(state, 4, n_samples=100, generator=1)[..., 0]
    from_history = model.forecast(history, 4, n_samples=100, n_particles=100, generator=2)[..., 0]
    for moment in (lambda x: x, torch.square, lambda x: x[..., 1:] * x[..., :-1]):
        one, one_error = mean_and_error(moment(from_state).mean(dim=1))
        other, other_error = mean_and_error(moment(from_history).mean(dim=1))
        assert ((one - other).abs() < 4.5 * (one_error.square() + other_error.square()).sqrt()).all()
    # A forecast does not change the stream, which goes on as if it had not been asked for.
    assert state.n_observed == position
    assert torch.equal(state.particles.log_weights, weights)


def test_a_surprise_is_visible_at_once():
    model = make_model(d_model=3, initial_latent_variance=0.01, initial_observation_variance=0.1)
    state = model.init_state(1, 50, generator=0)
    for _ in range(10):
        state, info = model.observe(state, torch.zeros(1, 1).double())
    calm = info.log_density
    state, info = model.observe(state, torch.full((1, 1), 5.0).double())
    assert info.log_density < calm - 20
    assert info.pit > 0.9999


def test_misuse_is_named(without_shape_checks):
    model = make_model(d_model=3, n_inputs=2, n_targets=1)
    state = model.init_state(2, generator=0)
    with pytest.raises(ValueError, match="nothing has been observed yet"):
        model.predictive(state)
    with pytest.raises(ValueError, match=r"shape \(batch, n_inputs\) = \(2, 2\), got \(2, 3\)"):
        model.observe(state, torch.zeros(2, 3).double())
    with pytest.raises(ValueError, match="not those of the first time step"):
        model.observe(state, torch.tensor([[NAN, 0.0], [0.0, 0.0]]).double())
    state, _ = model.observe(state, torch.zeros(2, 2).double())
    state, info = model.observe(state, torch.tensor([[NAN, 0.0], [0.0, 0.0]]).double())
    assert info.pit.isnan().tolist() == [[True], [False]]
    with pytest.raises(ValueError, match="only targets may be missing"):
        model.observe(state, torch.tensor([[0.0, NAN], [0.0, 0.0]]).double())
    with pytest.raises(ValueError, match="needs their values as future_inputs"):
        model.forecast(state, 3)


def test_a_forecast_leaves_no_trace_in_the_stream():
    model, x = make_model(d_model=3), sequences(1, 6)

    def densities(with_forecasts):
        state = model.init_state(1, 5, generator=0)
        seen = []
        for t in range(7):
            state, info = model.observe(state, x[:, t])
            seen.append(info.log_density.item())
            if with_forecasts:
                model.forecast(state, 3, n_samples=4)
        return seen

    assert densities(with_forecasts=True) == densities(with_forecasts=False)


def test_states_stay_with_their_model():
    one, other = make_model(d_model=3), make_model(d_model=3)
    state = one.init_state(1, generator=0)
    for call in (lambda: other.observe(state, torch.zeros(1, 1).double()), lambda: other.forecast(state, 2)):
        with pytest.raises(ValueError, match="belongs to another model"):
            call()
