"""The variants of latent noise do what their names say: against a Kalman filter, the model itself and each other."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.latent_variants import (
    VARIANTS,
    LatentNoise,
    Task,
    Variant,
    VariantLikelihood,
    filter_variant,
    make_model,
    objective,
    run,
)
from smc_transformer import SMCTransformer
from smc_transformer.inference.filter import particle_filter
from smc_transformer.inference.replay import replay, trajectory_inputs
from smc_transformer.learning import Stage
from smc_transformer.learning.goals import Sampling
from smc_transformer.nn.attention import Noise
from smc_transformer.support.randomness import as_generator

SETTINGS = {
    "n_inputs": 2,
    "n_targets": 1,
    "d_model": 8,
    "d_ff": 8,
    "encoder": "gru",
    "input_changes": True,
    "window": 3,
}
STEPS, PARTICLES = 6, 7


@pytest.fixture
def task():
    x = torch.randn(12, STEPS + 1, 2, generator=as_generator(1))
    stage = Stage(6, validations=2, batch_size=4, learning_rate=1e-2)
    return Task(x[:8], x[8:], {**SETTINGS, "predict_change": True, "observation": "heteroscedastic"}, stage)


def stirred(task, variant, seed=0):
    """A model whose variant is far from where it begins."""
    model = make_model(task, variant, seed)
    with torch.no_grad():
        for parameter in model.latent_noise.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=as_generator(5)))
    return model


def test_noise_that_remembers_has_the_likelihood_of_a_kalman_filter():
    """X_t = z(t) + observation noise with Wo = 0, so that z(t) is the autoregressive noise alone."""
    rho, latent, noise = 0.8, 0.5, 0.2
    settings = {"d_model": 1, "readout": "linear", "initial_latent_variance": latent}
    model = SMCTransformer.from_settings({**settings, "initial_observation_variance": noise}, generator=0)
    with torch.no_grad():
        model.attention.output.weight.zero_()
        for parameter in model.encoder.parameters():
            parameter.zero_()
        model.readout.projection.weight.fill_(1.0)
        model.readout.projection.bias.zero_()
    model.latent_noise = LatentNoise(Variant(rho=rho), model, None)
    x = 0.5 * torch.randn(1, 9, 1, generator=as_generator(3))
    mean, variance, expected = 0.0, latent, []
    for value in x[0, 1:, 0].tolist():
        total = variance + noise
        expected.append(-0.5 * ((value - mean) ** 2 / total + math.log(2 * math.pi * total)))
        gain = variance / total
        mean, variance = mean + gain * (value - mean), (1 - gain) * variance
        mean, variance = rho * mean, rho**2 * variance + (1 - rho**2) * latent
    found = filter_variant(model, x, 40_000, as_generator(0)).result.log_increments[0]
    np.testing.assert_allclose(found, expected, atol=0.02)
    independent = model.filter(x, 40_000, 0).log_increments[0]
    assert (independent - torch.tensor(expected)).abs().max() > 0.1  # the oracle tells the two apart


def test_the_walk_is_the_filter_where_nothing_is_remembered(task):
    model = stirred(task, Variant(rho=0.5))
    model.latent_noise.variant = Variant(rho=1e-9)
    found = filter_variant(model, task.train, PARTICLES, as_generator(4))
    generator = as_generator(4)
    noise = model.attention.draw_noise(len(task.train), PARTICLES, STEPS, generator)
    expected = particle_filter(model, task.train, model.settings(PARTICLES), generator, noise=noise)
    torch.testing.assert_close(found.result.ancestors, expected.ancestors)
    torch.testing.assert_close(found.result.read_outs, expected.read_outs, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.result.log_increments, expected.log_increments, atol=1e-4, rtol=1e-4)


def test_equal_scales_are_another_covariance(task):
    model = make_model(task, Variant(scales=True), 0)
    with torch.no_grad():
        model.latent_noise.scale.bias.fill_(0.4)
    found = filter_variant(model, task.train, PARTICLES, as_generator(4)).result
    factor = math.exp(3 * math.tanh(0.4 / 3))
    for covariance in model.attention.covariances:
        covariance.assign_(factor**2 * covariance.matrix())
    generator = as_generator(4)
    noise = model.attention.draw_noise(len(task.train), PARTICLES, STEPS, generator)
    expected = particle_filter(model, task.train, model.settings(PARTICLES), generator, noise=noise)
    torch.testing.assert_close(found.log_increments, expected.log_increments, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_trajectories_are_replayed_as_the_filter_went_through_them(task, name):
    model = stirred(task, VARIANTS[name])
    found = filter_variant(model, task.train, PARTICLES, as_generator(2))
    particles, weights = found.result.trajectories, found.result.log_weights[:, :, -1]
    # Without read-outs of the filter, which the objective would hand on.
    _, trajectories, parameters = objective(model, trajectory_inputs(model, task.train), found, particles, weights)
    expected = found.result.read_outs.gather(1, particles.unsqueeze(-1).expand_as(found.result.read_outs))
    torch.testing.assert_close(parameters, expected, atol=1e-4, rtol=1e-4)
    along = found.result.noise.along(particles)
    again = replay(model, trajectories.inputs, along).parameters
    torch.testing.assert_close(again, expected, atol=1e-4, rtol=1e-4)


def test_the_layer_below_has_the_gradient_of_a_replay_in_torch(task):
    model = stirred(task, VARIANTS["two layers, noise in both"])
    found = filter_variant(model, task.train, PARTICLES, as_generator(2))
    particles, weights = found.result.trajectories, found.result.log_weights[:, :, -1]
    parameters = [each for each in model.latent_noise.parameters() if each.requires_grad]
    log_density, trajectories, _ = objective(model, trajectory_inputs(model, task.train), found, particles, weights)
    ours = torch.autograd.grad(log_density.sum(), parameters, retain_graph=True)
    in_torch = replay(model, trajectories.inputs, found.result.noise.along(particles)).log_density
    expected = torch.autograd.grad(in_torch.sum(), parameters)
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
    assert max(float(one.abs().max()) for one in ours) > 0.1


def test_the_objective_is_a_function_of_the_variants_own_parameters(task):
    """The gradient of scales and rho against differences, with trajectories and fresh noise fixed."""
    for variant in (Variant(scales=True), VARIANTS["remembers, rho learned from 0.5"]):
        model = stirred(task, variant)
        found = filter_variant(model, task.train, PARTICLES, as_generator(2))
        particles, weights = found.result.trajectories, found.result.log_weights[:, :, -1]
        model.double()
        double = replace(found.result, noise=_double(found.result.noise), read_outs=found.result.read_outs.double())
        exact = found._replace(result=double, fresh=_double(found.fresh))
        parameter = next(model.latent_noise.parameters())

        def value(model=model, exact=exact, particles=particles, weights=weights):
            inputs = trajectory_inputs(model, task.train.double())
            return objective(model, inputs, exact, particles, weights)[0].sum()

        (gradient,) = torch.autograd.grad(value(), [parameter])
        direction = torch.randn(parameter.shape, generator=as_generator(8), dtype=torch.float64)
        with torch.no_grad():
            parameter.add_(1e-5 * direction)
            above = value()
            parameter.sub_(2e-5 * direction)
            below = value()
        expected = (above - below) / 2e-5
        torch.testing.assert_close((gradient * direction).sum(), expected, atol=1e-5, rtol=1e-4)
        assert abs(float(expected)) > 1e-3


def _double(noise):
    return Noise(*(part.double() for part in noise))


def test_a_variance_for_each_head_stays_one(task):
    model = make_model(task, VARIANTS["four heads, a variance for each head"], 0)
    task.stage.trainer(model, VariantLikelihood(), 0).fit(task.train, task.validation)
    for covariance in model.attention.covariances:
        by_head = covariance.factor.detach().unflatten(0, (4, -1))
        torch.testing.assert_close(by_head, by_head[:, :1].expand_as(by_head))
    assert by_head[:, 0].std() > 0


def test_the_default_is_the_models_own_likelihood(task):
    model = make_model(task, VARIANTS["latent noise"], 0)
    before = model.attention.query.weight.detach().clone()
    report = VariantLikelihood().accumulate(model, task.train, Sampling(PARTICLES, None, as_generator(0)))
    expected = -model.filter(task.train, 4000, 1).log_likelihood.sum()
    assert abs(report.loss - expected) / report.n_terms < 0.05
    assert report.n_terms == 8 * STEPS
    torch.testing.assert_close(model.attention.query.weight, before)
    assert model.attention.query.weight.grad.abs().max() > 0


def test_a_run_scores_validation_rows(task):
    found = run(task, VARIANTS["remembers, rho learned from 0.5"], 0)
    assert 0 < found["between_particles"] < 1
    assert np.isfinite(list(found.values())).all()
    assert found["rho"] != 0.5


def test_scales_that_are_the_same_in_all_states_learn_no_more_than_that(task):
    model = make_model(task, VARIANTS["scales, the same in all states"], 0)
    task.stage.trainer(model, VariantLikelihood(), 0).fit(task.train, task.validation)
    assert not model.latent_noise.scale.weight.any()
    assert model.latent_noise.scale.bias.abs().max() > 0
