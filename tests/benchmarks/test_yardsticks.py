"""The benchmarks' yardsticks compute what they claim to: a ratio to something wrong means nothing."""

import pytest
import torch
from helpers.models import make_model, mean_and_error, sequences

from benchmarks.deterministic import PlainTransformer
from benchmarks.textbook import textbook_filter
from smc_transformer.learning import training_step
from smc_transformer.nn import Noise


def test_textbook_gradient_is_ours_with_one_particle():
    """With one particle nothing is drawn but the noise, so both must agree exactly."""
    model = make_model(d_model=4, n_particles=1)
    x = sequences(3, 7)
    noise = torch.randn(4, 3, 1, 7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    objective, log_likelihood, second_moment = textbook_filter(model, x, 1, noise)
    objective.sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.gradient_parameters().items()}

    model.zero_grad()
    replayed = model.replay(x, Noise(*noise.unbind()))
    replayed.log_density.sum().backward()
    torch.testing.assert_close(objective, replayed.log_density.sum(dim=(1, 2)))
    torch.testing.assert_close(log_likelihood, objective.detach())
    torch.testing.assert_close(
        second_moment, (x[:, None, 1:] - replayed.parameters).square().mean().view(1, 1).detach()
    )
    for name, parameter in model.gradient_parameters().items():
        torch.testing.assert_close(gradients[name], parameter.grad)


def test_textbook_likelihood_is_ours_on_average(without_shape_checks):
    """Both estimates of the likelihood are unbiased."""
    model, many = make_model(d_model=3, n_particles=6).float(), 20_000
    x = sequences(1, 4, dtype=torch.float32).expand(many, -1, -1)
    torch.manual_seed(0)
    with torch.no_grad():
        theirs, their_error = mean_and_error(textbook_filter(model, x, 6)[1].exp())
    ours, our_error = mean_and_error(training_step(model, x, generator=1).log_likelihood.exp())
    assert abs(theirs - ours) < 4 * (their_error**2 + our_error**2).sqrt()
    assert their_error < 0.05 * theirs  # else anything would pass


def test_plain_transformer_is_ours_without_noise():
    model = make_model(d_model=4, d_ff=6, initial_latent_variance=0.0).float()
    plain = PlainTransformer(4, 6)
    parts = {"embedding": model.encoder.projection, "projection": model.readout.projection}
    parts |= {name: getattr(model.attention, name) for name in ("query", "key", "value", "output")}
    parts |= {name: getattr(model.readout, name) for name in ("attention_norm", "output_norm", "feed_forward")}
    for name, part in parts.items():
        getattr(plain, name).load_state_dict(part.state_dict())
    x = sequences(3, 7, dtype=torch.float32)
    ours = model.replay(x, Noise(*torch.zeros(4, 3, 1, 7, 4).unbind())).parameters[:, 0]
    torch.testing.assert_close(plain(x[:, :-1]), ours, rtol=1e-5, atol=1e-5)

    # Without observation noise, every path is the same, and each step is the mean given the steps before.
    paths = plain.sample_paths(x, horizon=4, n_paths=2, deviation=0.0)
    whole = torch.cat((x, paths[:, 0]), dim=1)
    torch.testing.assert_close(paths[:, 0], plain(whole[:, :-1])[:, 7:].detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_dropout_makes_passes_differ(dropout):
    torch.manual_seed(0)
    plain = PlainTransformer(dropout=dropout).train()
    x = sequences(2, 6, dtype=torch.float32)
    assert torch.equal(plain(x), plain(x)) == (dropout == 0.0)
