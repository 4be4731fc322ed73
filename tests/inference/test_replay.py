"""Proof 5: replaying traced trajectories in parallel reproduces the filter's z and means to rounding."""

import itertools

import pytest
import torch
from helpers.given_noise import filter_under
from helpers.models import STRUCTURES, make_model, sequences

from smc_transformer.nn import Noise
from smc_transformer.smc import RESAMPLERS, gather_trajectories

COMBINATIONS = list(itertools.product(RESAMPLERS, (None, 1, 3), (0.0, 0.5, 1.0)))


def replay_trajectories(model, x, result, trajectories):
    return model.replay(x, result.noise.along(trajectories))


@pytest.mark.parametrize(("resampling", "window", "ess_threshold"), COMBINATIONS)
def test_replay_of_traced_trajectories_is_what_the_filter_saw(resampling, window, ess_threshold):
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
    replayed = replay_trajectories(model, x, result, result.trajectories)
    expected_means = gather_trajectories(result.predictive.components.mean, result.trajectories)
    torch.testing.assert_close(replayed.attention, gather_trajectories(result.attention, result.trajectories))
    torch.testing.assert_close(replayed.parameters, expected_means)
    # The case must not be trivial: with resampling, trajectories do move between particles. Nothing comes before step
    # 0.
    resampled = result.resampled[:, 1:]
    assert not result.resampled[:, 0].any()
    assert resampled.any().item() == (ess_threshold > 0)
    assert resampled.all().item() == (ess_threshold == 1)
    if ess_threshold > 0:
        assert (result.trajectories != torch.arange(6).view(1, -1, 1)).any()


def test_trajectories_that_ignore_the_ancestors_are_not_reproduced():
    model = make_model(d_model=5, initial_latent_variance=0.5, initial_observation_variance=0.1)
    x = sequences(4, 9)
    result = model.filter(x, n_particles=6, generator=3)
    themselves = torch.arange(6).view(1, -1, 1).expand_as(result.trajectories)
    replayed = replay_trajectories(model, x, result, themselves)
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


def in_both_types(**settings):
    """The same model in float64 and in float32 (with weights that float32 holds exactly)."""
    single = make_model(d_model=5, d_ff=6, n_inputs=2, n_targets=2, **settings).float()
    double = make_model(d_model=5, d_ff=6, n_inputs=2, n_targets=2, **settings)
    double.load_state_dict(single.double().state_dict())
    return double, single.float()


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("ess_threshold", [0.0, 0.5, 1.0])
def test_a_float32_filter_agrees_with_a_float64_one_under_the_same_noise(structure, ess_threshold):
    settings = {"covariance": structure, "observation_covariance": structure, "ess_threshold": ess_threshold}
    double, single = in_both_types(position_encoding="sinusoidal", predict_change=True, **settings)
    x = sequences(4, 30, 2).float().double()
    noise = Noise(*torch.randn(4, 4, 6, 30, 5, generator=torch.Generator().manual_seed(1)))  # float32
    expected, result = (
        filter_under(given, model, values, torch.Generator().manual_seed(2), keep_attention=True)
        for given, model, values in (
            (Noise(*(eps.double() for eps in noise)), double, x),
            (noise, single, x.float()),
        )
    )

    assert result.log_increments.dtype == torch.float32
    assert torch.equal(result.ancestors, expected.ancestors)  # uniforms are drawn in float64 by both
    for name in ("log_increments", "log_weights", "attention"):
        assert_same_up_to_float32(getattr(result, name), getattr(expected, name))
    for name in ("mean", "variance"):
        assert_same_up_to_float32(getattr(result.predictive, name), getattr(expected.predictive, name))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("window", [None, 3])
def test_a_float32_replay_agrees_with_a_float64_one_under_the_same_noise(structure, window):
    settings = {"covariance": structure, "observation_covariance": structure, "window": window}
    double, single = in_both_types(**settings)
    x = sequences(4, 30, 2).float().double()
    result = double.filter(x, 6, generator=2)
    noise = Noise(*(eps.float() for eps in result.noise.along(result.trajectories)))
    replayed = single.replay(x.float(), noise)
    expected = double.replay(x, Noise(*(eps.double() for eps in noise)))
    for name in ("attention", "parameters", "log_density"):
        assert_same_up_to_float32(getattr(replayed, name), getattr(expected, name))

    replayed.log_density.sum().backward()
    expected.log_density.sum().backward()
    gradients = {name: parameter.grad for name, parameter in double.gradient_parameters().items()}
    for name, parameter in single.gradient_parameters().items():
        scale = gradients[name].abs().max().item()
        torch.testing.assert_close(parameter.grad.double(), gradients[name], atol=1e-4 * scale, rtol=0)


def assert_same_up_to_float32(single, double):
    """Equal to some hundred roundings of float32, of the size of the largest value."""
    assert single.dtype == torch.float32
    atol = 200 * torch.finfo(torch.float32).eps * max(1.0, double.abs().max().item())
    torch.testing.assert_close(single.double(), double, atol=atol, rtol=0)
