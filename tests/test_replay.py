"""Proof 5: replaying traced lines in parallel reproduces the filter's z and means to rounding."""

import itertools

import pytest
import torch
from helpers import make_model, sequences

from smc_transformer.smc import RESAMPLERS, gather_lines

COMBINATIONS = list(itertools.product(RESAMPLERS, (None, 1, 3), (0.0, 0.5, 1.0)))


def replay_lines(model, x, result, lines):
    return model.replay(x, result.noise.along(lines))


@pytest.mark.parametrize(("resampling", "window", "ess_threshold"), COMBINATIONS)
def test_replay_of_traced_lines_is_what_the_filter_saw(resampling, window, ess_threshold):
    model = make_model(
        d_model=5,
        n_inputs=2,
        n_targets=2,
        resampling=resampling,
        window=window,
        ess_threshold=ess_threshold,
        covariance="full",
        predict_change=True,
        position_encoding="sinusoidal",
        initial_latent_variance=0.5,
        initial_observation_variance=0.1,
    )
    x = sequences(4, 9, 2)
    result = model.filter(x, n_particles=6, generator=3)
    replayed = replay_lines(model, x, result, result.lines)
    expected_means = gather_lines(result.predictive.components.mean, result.lines)
    torch.testing.assert_close(replayed.attention, gather_lines(result.attention, result.lines))
    torch.testing.assert_close(replayed.parameters, expected_means)
    # The case must not be trivial: with resampling, lines do move between particles.
    assert result.resampled.any().item() == (ess_threshold > 0)


def test_lines_that_ignore_the_ancestors_are_not_reproduced():
    model = make_model(d_model=5, initial_latent_variance=0.5, initial_observation_variance=0.1)
    x = sequences(4, 9)
    result = model.filter(x, n_particles=6, generator=3)
    themselves = torch.arange(6).view(1, -1, 1).expand_as(result.lines)
    replayed = replay_lines(model, x, result, themselves)
    assert not torch.allclose(replayed.attention[..., -1, :], result.attention[..., -1, :])


def test_gradients_reach_every_parameter_that_gradients_learn():
    model = make_model(d_model=5, d_ff=4, position_encoding="learned", max_positions=9)
    x = sequences(4, 9)
    result = model.filter(x, generator=3)
    model.replay(x, result.noise).log_density.sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name
    assert not model.observation.covariance.factor.requires_grad
