"""Parts that a user has replaced or changed are not overlooked: torch does what the kernels do not know."""

import types

import pytest
import torch
from helpers.agreement import assert_same, both, random_model, seeded
from helpers.models import sequences
from torch import nn

from smc_transformer.inference import engine
from smc_transformer.inference.filter import particle_filter
from smc_transformer.learning import training_step
from smc_transformer.nn.covariance import COVARIANCES, DiagonalCovariance
from smc_transformer.nn.observation import GaussianObservation
from smc_transformer.smc import RESAMPLERS


def other_class(part, **methods):
    """Give an object a class of its own, in which some methods are others."""
    part.__class__ = type("Other", (type(part),), methods)


# --- changes, and what the engine says of them --------------------------------------------------------------


def hook_the_read_out(model):
    model.readout.register_forward_hook(lambda module, inputs, output: output + 1)
    return "a hook is registered on the read-out"


def hook_the_output(model):
    model.attention.output.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
    return "a hook is registered on the attention"


def bias_the_output(model):
    model.attention.output = nn.Linear(5, 5, dtype=torch.float64)
    return "the attention was replaced"


def attend_in_another_way(model):
    kind = type(model.attention)
    other_class(model.attention, attend_one=lambda self, *latents: 2 * kind.attend_one(self, *latents))
    return "the attention was replaced"


def attend_in_another_way_with_this_object(model):
    attend = model.attention.attend_one
    model.attention.attend_one = lambda *latents: 2 * attend(*latents)
    return "a method of the attention was replaced"


def scale_in_another_way(model):
    other_class(model.attention.key_covariance, scale=lambda self, noise: 2 * self.factor * noise)
    return "the attention was replaced"


def scale_in_another_way_with_this_object(model):
    covariance = model.attention.key_covariance
    covariance.scale = lambda noise: 2 * covariance.factor * noise
    return "a method of the attention was replaced"


def scale_in_a_way_that_has_a_name(model):
    """A structure that is known to settings is not by that known to C."""
    kind = type("Named", (DiagonalCovariance,), {"scale": lambda self, noise: 2 * self.factor * noise})
    COVARIANCES["named"] = kind  # taken out again by the fixture
    model.attention.key_covariance.__class__ = kind
    return "the attention was replaced"


def read_out_in_another_way(model):
    kind = type(model)
    other_class(model, read_out=lambda self, *a, **o: 1 + kind.read_out(self, *a, **o))
    return "the model's method read_out was replaced"


def read_out_in_another_way_with_this_object(model):
    read_out = model.read_out
    model.read_out = lambda *a, **o: 1 + read_out(*a, **o)
    return "the model's method read_out was replaced"


def another_forward_of_the_read_out(model):
    forward = model.readout.forward
    model.readout.forward = lambda *inputs: 1 + forward(*inputs)
    return "a method of the read-out was replaced"


def another_forward_of_a_part_of_the_read_out(model):
    norm = model.readout.output_norm
    forward = norm.forward
    norm.forward = lambda x: 2 * forward(x)
    return "a method of the read-out was replaced"


def another_activation(model):
    model.readout.feed_forward[1] = nn.GELU()
    model.readout.feed_forward[0].bias.data += 2  # where the two differ
    return "the read-out was replaced"


def read_out_without_a_bias(model):
    projection = nn.Linear(5, 1, bias=False, dtype=torch.float64)
    projection.weight = model.readout.projection.weight
    model.readout.projection = projection
    return "the read-out was replaced"


def normalise_without_weights(model):
    model.readout.output_norm = nn.LayerNorm(5, elementwise_affine=False)
    return "the read-out was replaced"


CHANGES_OF_STEPS = [
    hook_the_read_out,
    hook_the_output,
    bias_the_output,
    attend_in_another_way,
    attend_in_another_way_with_this_object,
    scale_in_another_way,
    scale_in_another_way_with_this_object,
    scale_in_a_way_that_has_a_name,
    read_out_in_another_way,
    read_out_in_another_way_with_this_object,
    another_forward_of_the_read_out,
    another_forward_of_a_part_of_the_read_out,
    another_activation,
    read_out_without_a_bias,
    normalise_without_weights,
]


def other_distributions(model):
    components = model.observation.components
    model.observation.components = lambda parameters: components(parameters + 1)
    return "a method of the observation model was replaced"


def other_distributions_by_a_method(model):
    """A bound method is no less a replacement than a function is."""
    other = types.MethodType(lambda self, parameters: type(self).components(self, parameters + 1), model.observation)
    model.observation.components = other
    return "a method of the observation model was replaced"


def a_class_that_has_not_said(model):
    kind = type(model.observation)
    other_class(model.observation, components=lambda self, parameters: kind.components(self, parameters + 1))
    return "the observation model has no kernel form"


def shift_in_another_way(model):
    """Although it has a kernel form: that says nothing of the shift."""
    other_class(
        model.observation,
        kernel_form=lambda self: GaussianObservation.kernel_form(self),
        shift=lambda self, parameters, last: 0.5 * parameters + last,
    )
    return "the observation model has a shift of its own, and the kernel adds the last targets"


def shift_in_another_way_with_this_object(model):
    model.observation.shift = lambda parameters, last: 0.5 * parameters + last
    return "a method of the observation model was replaced"


def draw_in_another_way_under_a_known_name(model):
    RESAMPLERS["systematic"] = lambda log_weights, n_samples, generator=None: log_weights.argmax(
        dim=-1, keepdim=True
    ).expand(-1, n_samples)  # put back by the fixture
    return "resampling scheme 'systematic' is not one that C knows"


CHANGES = [
    *CHANGES_OF_STEPS,
    other_distributions,
    other_distributions_by_a_method,
    a_class_that_has_not_said,
    shift_in_another_way,
    shift_in_another_way_with_this_object,
    draw_in_another_way_under_a_known_name,
]


@pytest.fixture(autouse=True)
def known_names(monkeypatch):
    """What is known by name is the same after the test as before."""
    for names in (COVARIANCES, RESAMPLERS):
        for name in list(names):
            monkeypatch.setitem(names, name, names[name])
    monkeypatch.setitem(COVARIANCES, "named", DiagonalCovariance)


def changeable(**settings):
    return random_model(d_model=5, d_ff=4, predict_change=True, **settings)


# --- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_user_has_changed_is_not_overlooked(change, calls):
    model, x = changeable(), sequences(3, 12)
    noise = model.attention.draw_noise(3, 7, 12, seeded(2))

    def increments():
        return particle_filter(model, x, model.settings(7), seeded(1), noise=noise).log_increments

    assert engine.explain_filter(model, model.inference, x) == []
    before = increments()
    assert calls["particle_filter"] == 1
    reason = change(model)
    assert f"step by step: {reason}" in engine.explain_filter(model, model.inference, x)
    found, expected = both(increments)
    assert_same(found, expected)
    assert calls["particle_filter"] == 1
    assert (before - expected).abs().max() > 0.01  # the change is one that could be overlooked


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("window", [None, 4])
def test_forecasts_of_changed_models_remember_their_history(change, window):
    """Paths share their particles' past; where torch takes the steps it must see that past, too."""
    model, x = changeable(window=window), sequences(3, 12)
    change(model)
    assert_same(*both(lambda: model.forecast(x, 4, 6, generator=1)))


@pytest.mark.parametrize("change", CHANGES)
def test_training_steps_of_changed_models(change):
    model, x = changeable(training=True), sequences(3, 9)
    change(model)

    def gradients():
        model.zero_grad()
        step = training_step(model, x, n_particles=7, generator=3)
        step.objective.sum().backward()
        return [step.objective.detach(), *(part.grad.clone() for part in model.gradient_parameters().values())]

    for one, other in zip(*both(gradients), strict=True):
        assert_same(one, other, 1e-10)


def test_features_of_ones_own_are_seen_by_the_kernel(calls):
    """They come before the encoder, which torch runs: no reason to go step by step."""
    model, x = changeable(), sequences(3, 12)
    noise = model.attention.draw_noise(3, 7, 12, seeded(2))
    before = particle_filter(model, x, model.settings(7), seeded(1), noise=noise).log_increments
    other_class(
        model.observation,
        kernel_form=lambda self: GaussianObservation.kernel_form(self),
        features=lambda self, x: x.sinh(),
    )
    found, expected = both(lambda: particle_filter(model, x, model.settings(7), seeded(1), noise=noise).log_increments)
    assert_same(found, expected)
    assert (before - expected).abs().max() > 0.01
    assert calls["particle_filter"] == 2


def test_a_scale_of_ones_own_in_the_observation_noise_is_seen_by_the_kernel(calls):
    model, x = changeable(), sequences(3, 12)
    noise = model.attention.draw_noise(3, 7, 12, seeded(2))
    before = particle_filter(model, x, model.settings(7), seeded(1), noise=noise).log_increments
    covariance = model.observation.covariance
    scale = covariance.scale
    covariance.scale = lambda noise: 2 * scale(noise)
    found, expected = both(lambda: particle_filter(model, x, model.settings(7), seeded(1), noise=noise).log_increments)
    assert_same(found, expected)
    assert (before - expected).abs().max() > 0.01
    assert calls["particle_filter"] == 2


def test_a_read_out_of_another_size_is_not_written_past_the_end_of_the_parameters():
    """It is left to torch, which complains of it."""
    model, x = changeable(), sequences(3, 12)
    model.readout.projection = nn.Linear(5, 4, dtype=torch.float64)
    assert engine.explain_filter(model, model.inference, x) == ["step by step: the read-out was replaced"]


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("attention.output.weight", (5, 4)),
        ("readout.feed_forward.0.bias", (1,)),
        ("readout.feed_forward.2.weight", (5, 1)),
        ("readout.output_norm.bias", (1,)),
        ("readout.projection.bias", (0,)),
        ("encoder.cell.weight_hh_l0", (15, 1)),
        ("encoder.cell.bias_ih_l0", (1,)),
    ],
)
def test_parameters_of_another_size_are_not_read_past_their_ends(part, wrong):
    model = random_model(n_inputs=1, n_targets=1, covariance="diagonal", encoder="gru", d_model=5, d_ff=7)
    model.get_parameter(part).data = torch.zeros(wrong, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"the parameter \w+ must have the shape"):
        particle_filter(model, sequences(3, 12), model.inference)


def test_the_window_is_that_of_the_attention(calls):
    model, x = changeable(initial_latent_variance=1.0), sequences(3, 12)
    model.attention.window = 2
    noise = model.attention.draw_noise(3, 7, 12, seeded(2))
    assert_same(*both(lambda: particle_filter(model, x, model.settings(7), seeded(1), noise=noise).log_increments))
    assert calls["particle_filter"] == 1
