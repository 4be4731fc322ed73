"""Proof 1: without latent noise the model is a plain deterministic causal transformer."""

import pytest
import torch
from helpers.models import make_model, sequences
from helpers.oracles.deterministic import deterministic_means

CASES = [
    {"window": None},
    {"window": 1},
    {"window": 3, "predict_change": True},
    {"window": None, "readout": "linear", "n_inputs": 3, "n_targets": 2},
    {"window": 4, "n_inputs": 2, "n_targets": 2, "covariance": "full"},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_filter_replay_and_a_naive_transformer_agree(settings):
    model = make_model(d_model=6, d_ff=5, initial_latent_variance=0.0, **settings)
    x = sequences(3, 7, model.config.n_inputs)
    expected = torch.from_numpy(deterministic_means(model, x)).unsqueeze(1)
    result = model.filter(x, n_particles=4, generator=0)
    replayed = model.replay(x, result.noise)
    torch.testing.assert_close(result.predictive.components.mean, expected.expand(-1, 4, -1, -1))
    torch.testing.assert_close(replayed.parameters, expected.expand(-1, 4, -1, -1))


def test_all_particles_are_equal():
    model = make_model(d_model=6, initial_latent_variance=0.0)
    result = model.filter(sequences(3, 7), n_particles=5, generator=0)
    assert (result.attention == result.attention[:, :1]).all()
    torch.testing.assert_close(result.ess, torch.full_like(result.ess, 5.0))
    torch.testing.assert_close(result.predictive.variance_parts().between, torch.zeros(3, 7, 1).double())


def test_likelihood_is_that_of_the_deterministic_network():
    model = make_model(d_model=6, initial_latent_variance=0.0, n_inputs=2, n_targets=2)
    x = sequences(3, 7, 2)
    means = torch.from_numpy(deterministic_means(model, x))
    distribution = torch.distributions.MultivariateNormal(means, model.observation.covariance.matrix())
    result = model.filter(x, n_particles=4, generator=0)
    torch.testing.assert_close(result.log_likelihood, distribution.log_prob(x[:, 1:]).sum(dim=-1))


def test_positions_change_the_embeddings_by_their_encoding():
    plain = make_model(d_model=6, initial_latent_variance=0.0)
    encoded = make_model(d_model=6, initial_latent_variance=0.0, position_encoding="sinusoidal")
    x = sequences(2, 5)
    difference = encoded.encoder(x) - plain.encoder(x)
    position = torch.arange(6).double()
    torch.testing.assert_close(difference[0, :, 0], position.sin())
    torch.testing.assert_close(difference[0, :, 1], position.cos())
    torch.testing.assert_close(difference[1, :, 4], (position * 10_000 ** (-4 / 6)).sin())
    whole, _ = encoded.encoder.encode(x)
    _, state = encoded.encoder.encode(x[:, :3])
    for t in range(3, 6):
        embedding, state = encoded.encoder.step(x[:, t], state, t)
        torch.testing.assert_close(embedding, whole[:, t])


def test_zero_noise_stays_zero_under_learning():
    from smc_transformer.learning import fit

    for noise_learning in ("em", "gradient"):
        model = make_model(d_model=4, initial_latent_variance=0.0, noise_learning=noise_learning)
        fit(model, sequences(8, 5), epochs=2, batch_size=4, progress=False)
        assert all(covariance.is_zero for covariance in model.latent_covariances().values())
