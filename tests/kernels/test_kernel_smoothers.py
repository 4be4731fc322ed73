"""Trajectories that no filter has been through are replayed by the kernel as by torch."""

import pytest
import torch
from helpers.agreement import random_model
from helpers.models import sequences

from smc_transformer.kernels import disabled
from smc_transformer.learning import training_step
from smc_transformer.nn import Noise
from smc_transformer.smc import RESAMPLERS

CASES = [
    ("fixed_lag", 1, {"window": 3, "n_heads": 4, "d_model": 8}),
    ("fixed_lag", 4, {"predict_change": True, "d_model": 5}),
    ("fixed_lag", 30, {"resampling": "residual", "ess_threshold": 0.5, "d_model": 3}),
    ("backward", 1, {"resampling": "multinomial", "d_model": 7, "observation": "student_t"}),
    ("backward", 3, {"window": 2, "readout": "linear", "d_model": 4}),
]


def noise_of_torch(dtype, d_model):
    def draw_noise(batch, n_particles, n_steps, generator=None):
        return Noise(*torch.randn(4, batch, n_particles, n_steps, d_model, generator=generator, dtype=dtype))

    return draw_noise


@pytest.mark.parametrize(("smoother", "lag", "settings"), CASES)
@pytest.mark.parametrize("n_trajectories", [None, 3])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-9), (torch.float32, 2e-3)])
def test_trajectories_of_other_smoothers(smoother, lag, settings, n_trajectories, dtype, rounding, monkeypatch, calls):
    model = random_model(smoother=smoother, smoothing_lag=lag, d_ff=6, **settings).to(dtype)
    x = sequences(3, 11).to(dtype)
    # The same noise for both: float32 noise of the kernel is not that of torch.
    monkeypatch.setattr("smc_transformer.nn.noise.in_c", lambda reasons: False)

    def run():
        model.zero_grad()
        step = training_step(model, x, n_particles=7, n_trajectories=n_trajectories, generator=3)
        step.objective.sum().backward()
        gradients = {name: parameter.grad.clone() for name, parameter in model.gradient_parameters().items()}
        return step.objective.detach(), gradients

    objective, gradients = run()
    ran = (calls["replay_forward"], calls["replay_backward"])
    assert ran == (lag < 11, 1)  # forward only where the filter has not been there
    with disabled():
        expected, expected_gradients = run()
    assert ran == (calls["replay_forward"], calls["replay_backward"])
    torch.testing.assert_close(objective, expected, rtol=rounding, atol=rounding)
    for name, gradient in gradients.items():
        size = float(expected_gradients[name].abs().max()) + 1e-3
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=0, atol=rounding * size, msg=name)


def test_a_resampling_scheme_of_ones_own_needs_nothing_but_its_name(monkeypatch):
    def heaviest(log_weights, n_samples, generator=None):
        return log_weights.argmax(dim=-1, keepdim=True).expand(-1, n_samples)

    monkeypatch.setitem(RESAMPLERS, "heaviest", heaviest)
    model, x = random_model(d_model=5, d_ff=4, resampling="heaviest"), sequences(3, 11)
    result = model.filter(x, 7, generator=1)
    assert torch.equal(result.ancestors[:, 0, 1:], result.log_weights[:, :, :-1].argmax(dim=1))
    with disabled():
        expected = model.filter(x, 7, generator=1)
    torch.testing.assert_close(result.log_increments, expected.log_increments)
