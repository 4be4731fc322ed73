"""Attention weights of particles against a recomputation by loops over particles, heads and slots."""

import math

import pytest
import torch
from helpers.models import make_model, sequences

from smc_transformer.inference.filter import filter_state, particle_filter
from smc_transformer.inference.step import spread
from smc_transformer.report.page import PastAttention, attention_ahead, attention_of_stream

N_PARTICLES, N_STEPS = 5, 14


def small_model(window, n_heads, encoder="linear"):
    return make_model(
        n_inputs=2,
        n_targets=2,
        d_model=4,
        d_ff=4,
        window=window,
        n_heads=n_heads,
        encoder=encoder,
        initial_latent_variance=0.5,
        initial_observation_variance=0.2,
    )


def naive_weights(model, query, keys):
    """Softmax by softmax; `keys` of the slots in time order."""
    size = model.config.d_model // model.config.n_heads
    total = torch.zeros(len(keys), dtype=torch.float64)
    for head in range(model.config.n_heads):
        part = slice(head * size, (head + 1) * size)
        scores = [math.exp(float(query[part] @ key[part]) / math.sqrt(size)) for key in keys]
        total += torch.tensor(scores, dtype=torch.float64) / sum(scores) / model.config.n_heads
    return total


def naive_line(ancestors, particle):
    """Who a particle descends from, step after step back."""
    line = [particle]
    for step in range(ancestors.shape[-1] - 1, 0, -1):
        line.insert(0, int(ancestors[line[0], step]))
    return line


def naive_ahead(model, x, noise, ancestors, fresh, window):
    """From the noise of the filter: keys of every slot along the line, and the query of the last row."""
    embedding = model.encoder(model.observation.features(x))
    root_k, root_q = (
        covariance.scale for covariance in (model.attention.key_covariance, model.attention.query_covariance)
    )
    weights = []
    for number in range(len(x)):
        rows = []
        for particle in range(N_PARTICLES):
            line = naive_line(ancestors[number], particle)
            keys = [
                model.attention.key.weight @ embedding[number, slot] + root_k(noise.key[number, owner, slot])
                for slot, owner in enumerate(line)
            ]
            keys.append(model.attention.key.weight @ embedding[number, -1] + root_k(fresh.key[number, particle]))
            query = model.attention.query.weight @ embedding[number, -1] + root_q(fresh.query[number, particle])
            rows.append(naive_weights(model, query, keys if window is None else keys[-window:]))
        weights.append(torch.stack(rows))
    return torch.stack(weights)


@pytest.mark.parametrize("window", [None, 1, 6, 40])
@pytest.mark.parametrize("n_heads", [1, 2])
def test_weights_ahead_are_those_of_a_loop_over_trajectories(window, n_heads):
    model = small_model(window, n_heads, "gru")
    x = sequences(2, N_STEPS, 2)
    noise = model.attention.draw_noise(2, N_PARTICLES, N_STEPS, torch.Generator().manual_seed(1))
    particles = filter_state(model, x, model.settings(N_PARTICLES), torch.Generator().manual_seed(2), noise=noise)
    result = particle_filter(model, x, model.settings(N_PARTICLES), torch.Generator().manual_seed(2), noise=noise)
    assert result.resampled.any()  # else trajectories are not tested
    fresh = model.attention.draw_noise(2, N_PARTICLES, 1, torch.Generator().manual_seed(3)).at(0)
    found = attention_ahead(model, particles, noise=fresh)
    with torch.no_grad():
        expected = naive_ahead(model, x, noise, result.ancestors, fresh, window)
    torch.testing.assert_close(found.weights, expected)
    torch.testing.assert_close(found.log_weights, result.log_weights[..., -1])


@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_stream_looks_where_its_filter_looked(window, gaps):
    """The attention of the stream and that ahead of the particles one step before are the same step."""
    model = small_model(window, 2, "gru")
    x = sequences(2, N_STEPS, 2)
    if gaps:
        x[:, 5] = float("nan")
    noise = model.attention.draw_noise(2, N_PARTICLES, N_STEPS + 1, torch.Generator().manual_seed(1))
    state = model.init_state(2, N_PARTICLES, generator=2)
    for t in range(N_STEPS + 1):
        state.observe(x[:, t], noise=noise.at(t))
    found = attention_of_stream(state, noise=noise.at(N_STEPS))
    particles = state.particles
    n_slots = N_STEPS + 1 if window is None else min(window, N_STEPS + 1)
    assert found.weights.shape == (2, N_PARTICLES, n_slots)
    with torch.no_grad():
        latents = model.attention.latents(state.prediction.moved.embedding, noise.at(N_STEPS))
    for number in range(2):
        for particle in range(N_PARTICLES):
            keys = []
            for slot in range(N_STEPS + 1 - n_slots, N_STEPS + 1):
                place = slot % particles.capacity
                owner = int(particles.trajectories[number, particle, place])
                keys.append(particles.keys[number, owner, place])
            query = latents.query.expand(2, N_PARTICLES, -1)[number, particle]
            torch.testing.assert_close(found.weights[number, particle], naive_weights(model, query, keys))


def test_asking_leaves_no_trace():
    model = small_model(4, 1, "gru")
    x = sequences(1, N_STEPS, 2)
    states = [filter_state(model, x, model.settings(N_PARTICLES), torch.Generator().manual_seed(2)) for _ in range(2)]
    attention_ahead(model, states[0], torch.Generator().manual_seed(3))
    for name in ("last", "log_weights", "keys", "trajectories", "position"):
        assert torch.equal(getattr(states[0], name), getattr(states[1], name))
    for mine, other in zip(states[0].encoder_state, states[1].encoder_state, strict=True):
        assert torch.equal(mine, other)


def test_mean_and_quantiles_across_weighted_particles():
    weights = torch.rand(2, 7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shares = torch.rand(2, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shares /= shares.sum(dim=1, keepdim=True)
    attention = PastAttention(weights, shares.log())
    for p in (0.05, 0.5, 0.95):
        found = attention.quantile(p)
        for number in range(2):
            for slot in range(3):
                ranked = sorted(zip(weights[number, :, slot].tolist(), shares[number].tolist(), strict=True))
                totals = [sum(share for _, share in ranked[: place + 1]) for place in range(len(ranked))]
                reached = next(place for place, total in enumerate(totals) if total >= p)
                assert found[number, slot] == ranked[reached][0]
    expected = (weights * shares.unsqueeze(-1)).sum(dim=1)
    torch.testing.assert_close(attention.mean, expected)


def test_equal_weights_have_the_order_statistics_as_quantiles():
    weights = torch.arange(1.0, 21.0).view(1, 20, 1)
    attention = PastAttention(weights, torch.full((1, 20), -math.log(20)))
    assert [attention.quantile(p).item() for p in (0.05, 0.5, 0.95)] == [1, 10, 19]
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        attention.quantile(1.0)


def test_a_stream_that_has_seen_nothing_says_so():
    with pytest.raises(ValueError, match="nothing has been observed yet"):
        attention_of_stream(small_model(4, 1).init_state(1, 3))


def test_particles_of_a_forecast_are_refused():
    model = small_model(4, 1)
    particles = filter_state(
        model, sequences(1, N_STEPS, 2), model.settings(N_PARTICLES), torch.Generator().manual_seed(2)
    )
    fresh, _ = spread(model, model.inference, particles, 8, 3, torch.Generator().manual_seed(3))
    with pytest.raises(ValueError, match="share their past"):
        attention_ahead(model, fresh)
