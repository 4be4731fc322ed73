"""The stochastic attention on top of every encoder: filter, replay, gaps, forecasts and learning agree."""

import pytest
import torch
from helpers.models import random_covariance, sequences
from helpers.oracles.multi_head import multi_head_means
from helpers.user_encoders import MovingAverages, SteppingAverages

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.inference.filter import filter_state, particle_filter
from smc_transformer.inference.mutation import mutate
from smc_transformer.inference.step import embed, receive, spread
from smc_transformer.learning import fit, negative_log_likelihood
from smc_transformer.nn.attention import Noise
from smc_transformer.smc import gather_trajectories, trace_trajectories

EXACT = {"rtol": 1e-9, "atol": 1e-11}
D_MODEL, N_PARTICLES = 4, 6

BUILT_IN = {
    "linear": {},
    "sinusoidal": {"position_encoding": "sinusoidal"},
    "transformer": {"encoder": "transformer", "encoder_layers": 2, "position_encoding": "sinusoidal"},
    "lstm": {"encoder": "lstm"},
    "gru": {"encoder": "gru", "encoder_layers": 2},
    "convolution": {"encoder": "convolution", "encoder_layers": 2},
}
BY_USERS = {"a user's module": MovingAverages, "a user's encoder": SteppingAverages}

every_encoder = pytest.mark.parametrize("encoder", [*BUILT_IN, *BY_USERS])
heads_and_windows = pytest.mark.parametrize(("n_heads", "window"), [(1, None), (2, None), (1, 3), (2, 3)])


def seeded_user_encoder(name, n_inputs, seed=10):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BY_USERS[name](n_inputs, D_MODEL)


def make_layer(encoder, *, n_inputs=3, n_targets=2, latent_variance=0.5, **settings):
    """A float64 model with this encoder, and covariances that differ between coordinates."""
    own = seeded_user_encoder(encoder, n_inputs) if encoder in BY_USERS else None
    every = {
        "n_inputs": n_inputs,
        "n_targets": n_targets,
        "d_model": D_MODEL,
        "d_ff": 5,
        "covariance": "full",
        "initial_latent_variance": latent_variance,
        "initial_observation_variance": 0.2,
        **BUILT_IN.get(encoder, {}),
        **settings,
    }
    model = SMCTransformer.from_settings(every, generator=0, encoder=own).double()
    generator = torch.Generator().manual_seed(1)
    for covariance in [*model.latent_covariances().values(), model.observation.covariance]:
        if not covariance.is_zero:
            covariance.assign_(random_covariance(covariance.matrix().detach(), generator))
    return model


def along(result, trajectories):
    """What the filter saw along trajectories: attention vectors, parameters, and completed targets if any."""
    completed = None if result.completed is None else gather_trajectories(result.completed, trajectories)
    return (
        gather_trajectories(result.attention, trajectories),
        gather_trajectories(result.predictive.components.mean, trajectories),
        completed,
    )


@every_encoder
@heads_and_windows
@pytest.mark.parametrize("ess_threshold", [0.5, 1.0])
def test_replay_of_traced_trajectories_is_what_the_filter_saw(encoder, n_heads, window, ess_threshold):
    model = make_layer(encoder, n_heads=n_heads, window=window, ess_threshold=ess_threshold)
    x = sequences(4, 8, 3)
    result = model.filter(x, N_PARTICLES, generator=3)
    assert result.resampled.any()
    attention, parameters, _ = along(result, result.trajectories)
    replayed = model.replay(x, result.noise.along(result.trajectories))
    torch.testing.assert_close(replayed.attention, attention, **EXACT)
    torch.testing.assert_close(replayed.parameters, parameters, **EXACT)


@every_encoder
@heads_and_windows
def test_without_noise_particles_are_equal_and_filter_replay_and_naive_loops_agree(encoder, n_heads, window):
    model = make_layer(encoder, n_heads=n_heads, window=window, latent_variance=0.0)
    x = sequences(4, 8, 3)
    result = model.filter(x, N_PARTICLES, generator=3)
    assert (result.attention == result.attention[:, :1]).all()
    torch.testing.assert_close(result.ess, torch.full_like(result.ess, N_PARTICLES))
    expected = multi_head_means(model, x, model.encoder(x[:, :-1]))
    expected = torch.from_numpy(expected).unsqueeze(1).expand(-1, N_PARTICLES, -1, -1)
    torch.testing.assert_close(result.predictive.components.mean, expected, **EXACT)
    torch.testing.assert_close(model.replay(x, result.noise).parameters, expected, **EXACT)


@every_encoder
@heads_and_windows
@pytest.mark.parametrize("gaps", [False, True])
def test_gradients_through_replay_reach_the_encoder_and_are_those_of_finite_differences(encoder, n_heads, window, gaps):
    model = make_layer(encoder, n_heads=n_heads, window=window)
    x = sequences(4, 8, 3)
    if gaps:
        x[:, 3:5, :2] = torch.nan
    result = model.filter(x, N_PARTICLES, generator=3)
    noise, completed = result.noise.along(result.trajectories), along(result, result.trajectories)[-1]
    model.replay(x, noise, completed).log_density.sum().backward()
    step = 1e-5
    for name, parameter in model.encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    first = next(model.encoder.parameters())
    place = first.grad.abs().argmax()
    values = []
    with torch.no_grad():
        for change in (step, -2 * step):
            first.view(-1)[place] += change
            values.append(model.replay(x, noise, completed).log_density.sum())
    torch.testing.assert_close(first.grad.view(-1)[place], (values[0] - values[1]) / (2 * step), rtol=1e-5, atol=1e-6)


# Forecasts


@every_encoder
@heads_and_windows
@pytest.mark.parametrize("n_past", [1, 5])
def test_forecasts_go_on_as_the_filter_would(encoder, n_heads, window, n_past):
    """Without noise a path is the filter's means, when it is fed back as observations."""
    model = make_layer(encoder, n_heads=n_heads, window=window, latent_variance=0.0)
    model.observation.covariance.assign_(1e-16)
    history, known = sequences(2, n_past - 1, 3), sequences(2, 3, 1, seed=1)
    paths = model.forecast(history, 4, 3, known, generator=0, n_particles=2, on_collapse="uniform")
    torch.testing.assert_close(paths, paths[:, :1].expand(-1, 3, -1, -1), atol=1e-6, rtol=0)
    whole = torch.cat((history, torch.cat((paths[:, 0], known), dim=-1)), dim=1)
    model.observation.covariance.assign_(1.0)
    means = model.filter(whole, 2, generator=0).predictive.mean
    torch.testing.assert_close(means[:, n_past - 1 :], paths[:, 0], atol=1e-6, rtol=0)
    assert paths.diff(dim=2).abs().max() > 1e-3  # nor is it constant


@every_encoder
@pytest.mark.parametrize("missing", [[5], [2, 4], [1, 2, 3, 4, 5]], ids=str)
@pytest.mark.parametrize(("n_particles", "n_samples"), [(1, 7), (6, 1), (6, 7)])
def test_forecasts_of_any_size_go_on_after_a_gap(encoder, missing, n_particles, n_samples):
    model = make_layer(encoder, latent_variance=0.0)
    model.observation.covariance.assign_(1e-16)
    history, known = sequences(2, 5, 3), sequences(2, 3, 1, seed=1)
    history[:, missing, :2] = torch.nan
    paths = model.forecast(history, 4, n_samples, known, generator=0, n_particles=n_particles, on_collapse="uniform")
    # Without noise, the gap is filled by the means: fill it by hand, and nothing may change.
    filled = history.clone()
    for t in missing:
        model.observation.covariance.assign_(1.0)
        filled[:, t, :2] = 0.0  # has no part in its own prediction
        filled[:, t, :2] = model.filter(filled[:, : t + 1], 1, generator=0).predictive.mean[:, -1]
    whole = torch.cat((filled, torch.cat((paths[:, 0], known), dim=-1)), dim=1)
    means = model.filter(whole, 1, generator=0).predictive.mean[:, 5:]
    torch.testing.assert_close(paths, means.unsqueeze(1).expand_as(paths), atol=1e-6, rtol=0)


@every_encoder
@heads_and_windows
@pytest.mark.parametrize("missing", [[6], [2, 6], [2, 3, 5, 6]], ids=str)
def test_paths_inherit_the_whole_past_of_their_particle(encoder, n_heads, window, missing):
    """Every path has one particle's trajectory: its latents, its completed inputs and its encoder's memory of them.

    The last observation is missing, so each particle has drawn its own, which shows whom a path descends from.
    """
    model = make_layer(encoder, n_heads=n_heads, window=window)
    x = sequences(3, 6, 3)
    x[:, missing, :2] = torch.nan
    generator = torch.Generator().manual_seed(4)
    noise = model.attention.draw_noise(3, N_PARTICLES, 6, generator)
    result = particle_filter(
        model, x, model.settings(N_PARTICLES), generator.clone_state(), noise=noise, keep_attention=True
    )
    state = filter_state(model, x, model.settings(N_PARTICLES), generator, noise=noise)
    fresh = spread(model, model.inference, state, 11, 2, generator)[0]
    matches = (fresh.last.unsqueeze(2) == state.last.unsqueeze(1)).all(dim=-1)
    assert (matches.sum(dim=-1) == 1).all()
    trajectories = trace_trajectories(result.ancestors, matches.int().argmax(dim=-1))
    noise, completed = result.noise.along(trajectories), along(result, trajectories)[-1]
    for _ in range(2):
        new = model.attention.draw_noise(3, 11, 1, generator)
        with torch.no_grad():
            _, z, _, parameters = mutate(model, fresh, embed(model, fresh), new.at(0))
        noise = Noise(*(torch.cat(pair, dim=2) for pair in zip(noise, new, strict=True)))
        drawn = torch.randn(3, 11, 1, 2, generator=generator, dtype=torch.float64)
        known = torch.randn(3, 1, generator=generator, dtype=torch.float64)
        completed = torch.cat((completed, drawn), dim=2)
        following = torch.full((3, 1, 3), torch.nan).double()
        following[:, 0, 2:] = known
        x = torch.cat((x, following), dim=1)
        replayed = model.replay(x, noise, completed)
        torch.testing.assert_close(z, replayed.attention[:, :, -1], **EXACT)
        torch.testing.assert_close(parameters, replayed.parameters[:, :, -1], **EXACT)
        receive(fresh, torch.cat((drawn[:, :, 0], known.unsqueeze(1).expand(-1, 11, -1)), dim=-1))


# Missing values


def one_gap(x):
    x[:, 4, :2] = torch.nan


def several_gaps(x):
    x[:, [1, 4, 5, 7], :2] = torch.nan


def different_gaps(x):
    x[0, 2, :2] = torch.nan
    x[1, 4:7, :2] = torch.nan
    x[3, [1, 6], :2] = torch.nan


def partial_gaps(x):
    x[:, 3, 0] = torch.nan
    x[1, 5, 1] = torch.nan
    x[2, 5, :2] = torch.nan
    x[3, 6, 0] = torch.nan


def gap_at_the_end(x):
    x[:, -2:, :2] = torch.nan


every_gap = pytest.mark.parametrize("gaps", [one_gap, several_gaps, different_gaps, partial_gaps, gap_at_the_end])


@every_encoder
@every_gap
@pytest.mark.parametrize(("n_heads", "window", "ess_threshold"), [(1, None, 1.0), (2, 3, 1.0), (2, None, 0.7)])
def test_replay_of_completed_trajectories_is_what_the_filter_saw(encoder, gaps, n_heads, window, ess_threshold):
    """So the encoder's memory of drawn inputs goes with the particle that drew them through every resampling."""
    model = make_layer(encoder, n_heads=n_heads, window=window, ess_threshold=ess_threshold)
    x = sequences(4, 9, 3)
    gaps(x)
    result = model.filter(x, N_PARTICLES, generator=3)
    targets = x[:, None, 1:, :2].expand_as(result.completed)
    assert result.completed.isfinite().all()
    assert torch.equal(result.completed[~targets.isnan()], targets[~targets.isnan()])
    assert (result.completed.std(dim=1)[targets[:, 0].isnan()] > 0).all()

    for n_steps in range(1, 10):  # the trajectories of the particles of every step, not of the last alone
        trajectories = trace_trajectories(result.ancestors[:, :, :n_steps])
        noise = Noise(*(eps[:, :, :n_steps] for eps in result.noise)).along(trajectories)
        completed = gather_trajectories(result.completed[:, :, :n_steps], trajectories)
        replayed = model.replay(x[:, : n_steps + 1], noise, completed)
        parameters = result.predictive.components.mean[:, :, n_steps - 1]
        torch.testing.assert_close(replayed.attention[:, :, -1], result.attention[:, :, n_steps - 1], **EXACT)
        torch.testing.assert_close(replayed.parameters[:, :, -1], parameters, **EXACT)
    attention, parameters, completed = along(result, result.trajectories)
    replayed = model.replay(x, result.noise.along(result.trajectories), completed)
    torch.testing.assert_close(replayed.attention, attention, **EXACT)
    torch.testing.assert_close(replayed.parameters, parameters, **EXACT)

    # The case must not be trivial: trajectories move between particles, and do so after values were drawn.
    first_gap = int(targets.isnan().any(dim=-1).any(dim=1).any(dim=0).int().argmax())
    assert result.resampled[:, first_gap + 1 :].any() or gaps is gap_at_the_end
    themselves = torch.arange(N_PARTICLES).view(1, -1, 1).expand_as(result.trajectories)
    if gaps is not gap_at_the_end:
        others = model.replay(x, result.noise.along(result.trajectories), along(result, themselves)[-1])
        assert not torch.allclose(others.parameters, parameters)


@every_encoder
def test_one_particle_and_one_sequence_complete_gaps_too(encoder):
    model = make_layer(encoder)
    for batch, n_particles in ((1, 1), (3, 1), (1, 3), (3, 3)):
        x = sequences(batch, 7, 3)
        x[:, [2, 3, 5], :2] = torch.nan
        result = model.filter(x, n_particles, generator=0)
        attention, parameters, completed = along(result, result.trajectories)
        replayed = model.replay(x, result.noise.along(result.trajectories), completed)
        torch.testing.assert_close(replayed.attention, attention, **EXACT)
        torch.testing.assert_close(replayed.parameters, parameters, **EXACT)


@every_encoder
def test_sequences_without_gaps_do_not_notice_those_of_others(encoder):
    """Per-particle inputs are used for the whole batch from the first gap on: the numbers stay the same."""
    model = make_layer(encoder, latent_variance=0.0)
    x = sequences(4, 8, 3)
    gapped = x.clone()
    gapped[1, 2, :2] = torch.nan
    gapped[3, 5, 0] = torch.nan
    plain, found = (model.filter(sequence, N_PARTICLES, generator=0) for sequence in (x, gapped))
    for row in (0, 2):
        expected = plain.predictive.components.mean[row]
        torch.testing.assert_close(found.predictive.components.mean[row], expected, **EXACT)
        # Less exact: beside gaps, the covariance gets 1e-9 of its size more, so that it stays positive definite.
        torch.testing.assert_close(found.log_increments[row], plain.log_increments[row], rtol=0, atol=2e-7)


def test_the_two_encoders_of_the_user_are_one_model():
    """Reading the past again or remembering it: the same numbers, in gaps and in forecasts."""
    models = [make_layer(name) for name in BY_USERS]
    x, known = sequences(3, 8, 3), sequences(3, 3, 1, seed=1)
    x[:, [2, 5], :2] = torch.nan
    one, other = (model.filter(x, N_PARTICLES, generator=0) for model in models)
    torch.testing.assert_close(one.completed, other.completed, **EXACT)
    torch.testing.assert_close(one.log_increments, other.log_increments, **EXACT)
    one, other = (model.forecast(x, 4, 5, known, generator=0) for model in models)
    torch.testing.assert_close(one, other, **EXACT)


# Learning


@every_encoder
@pytest.mark.parametrize("gaps", [False, True])
def test_training_lowers_the_nll_and_moves_the_encoder(encoder, gaps):
    model = make_layer(encoder, n_inputs=1, n_targets=1, n_heads=2, latent_variance=0.1)
    x = sequences(16, 8)
    if gaps:
        x[:8, 3] = torch.nan
        x[8:, [2, 6]] = torch.nan
    before = {name: parameter.detach().clone() for name, parameter in model.encoder.named_parameters()}
    untrained = negative_log_likelihood(model, x, n_particles=50, generator=0)
    # Without EM, so that it is gradients that lower it.
    fit(model, x, epochs=5, batch_size=8, learning_rate=0.02, em_step_size=None, progress=False)
    assert negative_log_likelihood(model, x, n_particles=50, generator=0) < untrained - 0.05
    for name, parameter in model.encoder.named_parameters():
        assert not torch.equal(parameter, before[name]), name


# First weights


@pytest.mark.parametrize("encoder", BY_USERS)
def test_the_weights_of_a_user_stay_as_they_are(encoder):
    own = seeded_user_encoder(encoder, 1)
    before = {name: value.clone() for name, value in own.state_dict().items()}
    for generator in (0, None):
        model = SMCTransformer(SMCTransformerConfig(d_model=D_MODEL), generator=generator, encoder=own)
        assert own in list(model.encoder.modules())
        assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())


@every_encoder
@pytest.mark.parametrize("n_layers", [1, 2])
def test_first_weights_come_from_the_generator_and_from_nothing_else(encoder, n_layers):
    def build(global_seed, seed):
        with torch.random.fork_rng(devices=[]):
            own = seeded_user_encoder(encoder, 1) if encoder in BY_USERS else None
            torch.manual_seed(global_seed)
            state = torch.get_rng_state()
            settings = {"d_model": D_MODEL, **BUILT_IN.get(encoder, {}), "encoder_layers": n_layers}
            model = SMCTransformer(SMCTransformerConfig(**settings), generator=seed, encoder=own)
            assert torch.equal(torch.get_rng_state(), state)
        return model

    one, same, other = build(1, 0), build(2, 0), build(1, 5)
    for name, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
    for (name, value), different in zip(one.encoder.named_parameters(), other.encoder.parameters(), strict=True):
        constant = "norm" in name or "table" in name
        assert torch.equal(value, different) == (constant or encoder in BY_USERS), name
    assert not torch.equal(one.attention.query.weight, other.attention.query.weight)


def test_an_encoder_that_returns_something_else_is_named(without_shape_checks):
    model = SMCTransformer(SMCTransformerConfig(d_model=4), encoder=torch.nn.LSTM(1, 4, batch_first=True))
    with pytest.raises(ValueError, match=r"must map .* to \(row, time, d_model\), got tuple"):
        model.filter(torch.zeros(2, 5, 1), generator=0)
