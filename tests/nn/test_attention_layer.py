"""The stochastic attention as a layer in a network of one's own."""

import pytest
import torch
from helpers.models import mean_and_error, random_covariance, sequences
from torch import nn
from torch.nn import functional as F

from smc_transformer.nn import StochasticSelfAttention

EXACT = {"rtol": 1e-10, "atol": 1e-12}


class UserNetwork(nn.Module):
    """A user's own network: an embedding, the layer, a residual and a linear output."""

    def __init__(self, n_features, d_model, **settings):
        super().__init__()
        self.embedding = nn.Linear(n_features, d_model)
        self.attention = StochasticSelfAttention(d_model, **settings)
        self.output = nn.Linear(d_model, 1)

    def forward(self, x, n_samples=1, generator=None):
        embedding = self.embedding(x).unsqueeze(1)
        noise = self.attention.draw_noise(len(x), n_samples, x.shape[1], generator)
        z = self.attention.attend_all(self.attention.latents(embedding, noise))
        z = z + self.attention.attention_covariance.scale(noise.attention)
        return self.output(z + embedding)


def make_network(seed=0, **settings):
    torch_state = torch.get_rng_state()
    network = UserNetwork(2, 4, **settings).double()
    torch.set_rng_state(torch_state)
    generator = torch.Generator().manual_seed(seed)
    for part in network.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.5, generator=generator)
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.5, generator=generator)
    if settings.get("variance", 0.25) > 0:
        for name in ("query", "key", "value", "attention"):
            covariance = getattr(network.attention, f"{name}_covariance")
            covariance.assign_(random_covariance(covariance.matrix().detach(), generator))
    return network


@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_without_variance_it_is_the_causal_attention_of_torch(n_heads):
    network = make_network(variance=0.0, n_heads=n_heads)
    attention = network.attention
    x = sequences(3, 6, 2)
    embedding = network.embedding(x)
    heads = (
        projection(embedding).unflatten(-1, (n_heads, -1)).transpose(1, 2)
        for projection in (attention.query, attention.key, attention.value)
    )
    context = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(-2)
    expected = network.output(context @ attention.output.weight.T + embedding).unsqueeze(1)
    found = network(x, n_samples=3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found, expected.expand(-1, 3, -1, -1), **EXACT)


def test_a_window_forgets_what_is_older():
    network = make_network(variance=0.0, window=3)
    x = sequences(2, 7, 2)
    plain = network(x)
    changed = x.clone()
    changed[:, 2] += 1.0
    differs = (network(changed) - plain).abs().amax(dim=(0, 1, 3)) > 1e-9
    assert differs.tolist() == [2 <= t < 5 for t in range(8)]


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_queries_keys_and_values_have_the_mean_and_covariance_asked_for(covariance):
    attention = make_network(covariance=covariance, variance=0.4).attention
    n_samples = 20_000
    embedding = sequences(2, 1, 4).unsqueeze(1)  # (batch, 1, time, d_model)
    noise = attention.draw_noise(2, n_samples, 2, torch.Generator().manual_seed(5))
    with torch.no_grad():
        latents, means = attention.latents(embedding, noise), attention.means(embedding)
        for name in ("query", "key", "value"):
            expected = getattr(attention, f"{name}_covariance").matrix()
            centred = (getattr(latents, name) - getattr(means, name)).transpose(0, 1)
            found, error = mean_and_error(centred)
            assert (found.abs() < 4.5 * error).all()
            found, error = mean_and_error(centred.unsqueeze(-1) * centred.unsqueeze(-2))
            assert (error < 0.05).all()
            assert ((found - expected).abs() < 4.5 * error).all()


def test_noises_of_queries_keys_values_slots_and_sequences_are_independent():
    attention = make_network(variance=0.4).attention
    noise = attention.draw_noise(2, 20_000, 2, torch.Generator().manual_seed(6))
    drawn = torch.stack(tuple(noise)).permute(2, 0, 1, 3, 4).flatten(1)  # (sample, kind x batch x time x coordinate)
    found = drawn.T @ drawn / len(drawn)
    # Products of standard normal numbers have variance 1, squares 2; among 2080 of them some reach 4 errors.
    error = ((1 + torch.eye(64).double()) / len(drawn)).sqrt()
    assert ((found - torch.eye(64).double()).abs() < 5 * error).all()


def test_attention_vectors_vary_as_much_as_their_values_and_own_noise():
    """With a window of one slot the softmax is 1, so z = Wo v + noise: Cov z = Wo Sv Wo^T + Sz."""
    network = make_network(window=1, covariance="full", variance=0.4)
    attention, read = network.attention, network.output.weight
    x = sequences(2, 1, 2)
    with torch.no_grad():
        samples = network(x, 20_000, torch.Generator().manual_seed(7)).squeeze(-1).transpose(0, 1)
        out = attention.output.weight
        covariance = out @ attention.value_covariance.matrix() @ out.T + attention.attention_covariance.matrix()
        variance = (read @ covariance @ read.T).item()
        embedding = network.embedding(x)
        mean = network.output(embedding @ attention.value.weight.T @ out.T + embedding).squeeze(-1)
    found, error = mean_and_error(samples)
    assert ((found - mean).abs() < 4.5 * error).all()
    found, error = mean_and_error((samples - mean).square())
    assert ((found - variance).abs() < 4.5 * error).all()
    assert (error < 0.05 * variance).all()


def test_all_its_parameters_learn_within_the_network():
    network = make_network(n_heads=2)
    x = sequences(4, 6, 2)
    network(x, 3, torch.Generator().manual_seed(0)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_draws_depend_on_the_generator_alone():
    network = make_network(n_heads=2)
    x = sequences(2, 4, 2)
    torch_state = torch.get_rng_state()
    one, same, other = (network(x, 3, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.isclose(one, other).any()
    assert torch.equal(torch.get_rng_state(), torch_state)
