"""Several heads: each has a softmax and noise of its own, and one head is the paper's attention."""

import pytest
import torch
from helpers.models import make_model, sequences
from helpers.oracles.deterministic import deterministic_means
from helpers.oracles.multi_head import multi_head_means

from smc_transformer import SMCTransformerConfig
from smc_transformer.nn import StochasticSelfAttention
from smc_transformer.nn.attention import Latents, Noise

EXACT = {"rtol": 1e-10, "atol": 1e-12}


def make_attention(n_heads, window=None, variance=0.25, seed=0):
    """An attention layer in float64 with seeded weights that do not saturate the softmax."""
    attention = StochasticSelfAttention(6, window, "full", variance, n_heads).double()
    generator = torch.Generator().manual_seed(seed)
    for projection in (attention.query, attention.key, attention.value, attention.output):
        torch.nn.init.normal_(projection.weight, std=0.5, generator=generator)
    return attention


def random_latents(n_steps=7, seed=0):
    draws = torch.randn(3, 2, 4, n_steps, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Latents(*draws.unbind())


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("settings", [{}, {"n_inputs": 3, "n_targets": 2, "predict_change": True}], ids=str)
def test_without_noise_the_model_is_a_naive_multi_head_transformer(n_heads, window, settings):
    model = make_model(d_model=6, d_ff=5, n_heads=n_heads, window=window, initial_latent_variance=0.0, **settings)
    x = sequences(3, 7, model.config.n_inputs)
    embedding, _ = model.encoder.encode(x[:, :-1])
    expected = torch.from_numpy(multi_head_means(model, x, embedding)).unsqueeze(1).expand(-1, 4, -1, -1)
    result = model.filter(x, n_particles=4, generator=0)
    torch.testing.assert_close(result.predictive.components.mean, expected, **EXACT)
    torch.testing.assert_close(model.replay(x, result.noise).parameters, expected, **EXACT)


def test_the_number_of_heads_matters_and_one_is_the_single_head_oracle():
    x = sequences(3, 7)
    one, two = (make_model(d_model=6, n_heads=n_heads, initial_latent_variance=0.0) for n_heads in (1, 2))
    single = torch.from_numpy(deterministic_means(one, x))
    embedding, _ = one.encoder.encode(x[:, :-1])
    torch.testing.assert_close(torch.from_numpy(multi_head_means(one, x, embedding)), single, **EXACT)
    found = [model.filter(x, 1, generator=0).predictive.components.mean[:, 0] for model in (one, two)]
    torch.testing.assert_close(found[0], single, **EXACT)
    assert (found[1] - single).abs().max() > 1e-4  # the same seed gives the same weights, so only the heads differ


@pytest.mark.parametrize("n_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("window", [None, 1, 3])
def test_attending_with_one_query_is_a_row_of_attending_with_all(n_heads, window):
    attention, latents = make_attention(n_heads, window), random_latents()
    rows = attention.attend_all(latents)
    for step in range(7):
        visible = slice(attention.first_slot(step), step + 1)
        one = attention.attend_one(latents.query[:, :, step], latents.key[:, :, visible], latents.value[:, :, visible])
        torch.testing.assert_close(one, rows[:, :, step], **EXACT)


@pytest.mark.parametrize("window", [None, 3])
def test_one_head_is_the_formula_of_the_paper(window):
    attention, latents = make_attention(1, window), random_latents()
    expected = torch.zeros_like(latents.value)
    for step in range(7):
        visible = slice(0 if window is None else max(0, step + 1 - window), step + 1)
        scores = (latents.key[:, :, visible] * latents.query[:, :, step, None]).sum(dim=-1) / 6**0.5
        shares = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
        expected[:, :, step] = (shares.unsqueeze(-1) * latents.value[:, :, visible]).sum(dim=-2)
    torch.testing.assert_close(attention.attend_all(latents), expected @ attention.output.weight.T, **EXACT)


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_the_noise_of_a_head_stays_in_that_head(part):
    """Noise on the coordinates of one head changes what that head reads, and nothing that the others read."""
    attention = StochasticSelfAttention(6, None, "diagonal", 0.25, 3).double()
    torch.nn.init.eye_(attention.output.weight)
    embedding = torch.randn(2, 1, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nothing = torch.zeros(2, 1, 5, 6).double()
    plain = attention.attend_all(attention.latents(embedding, Noise(*(nothing,) * 4)))
    for head in range(3):
        own = slice(2 * head, 2 * head + 2)
        eps = nothing.clone()
        eps[..., own] = torch.randn(2, 1, 5, 2, generator=torch.Generator().manual_seed(head + 1), dtype=torch.float64)
        noise = Noise(*(nothing,) * 4)._replace(**{part: eps})
        changed = (attention.attend_all(attention.latents(embedding, noise)) - plain).abs() > 1e-9
        assert changed[:, :, -1, own].all()
        changed[..., own] = False
        assert not changed.any()


@pytest.mark.parametrize(("d_model", "n_heads"), [(6, 4), (5, 2), (3, 6)])
def test_the_heads_must_divide_the_model(d_model, n_heads):
    with pytest.raises(ValueError, match=f"n_heads must divide d_model={d_model}, got {n_heads}"):
        SMCTransformerConfig(d_model=d_model, n_heads=n_heads)
