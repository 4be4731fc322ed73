"""Parts that a user has replaced or changed are not overlooked: torch does what the kernels do not know."""

import pytest
import torch
from helpers.agreement import random_model
from helpers.models import sequences
from torch import nn

from smc_transformer.inference.filter import particle_filter
from smc_transformer.kernels import disabled
from smc_transformer.nn.covariance import DiagonalCovariance


def hook_the_read_out(model):
    model.readout.register_forward_hook(lambda module, inputs, output: output + 1)


def bias_the_output(model):
    model.attention.output = nn.Linear(5, 5, dtype=torch.float64)


def attend_in_another_way(model):
    kind = type(model.attention)
    model.attention.__class__ = type(
        "Other", (kind,), {"attend_one": lambda self, *latents: 2 * kind.attend_one(self, *latents)}
    )


def scale_in_another_way(model):
    kind = type("Wider", (DiagonalCovariance,), {"scale": lambda self, noise: 2 * self.factor * noise})
    model.attention.key_covariance.__class__ = kind


def read_out_in_another_way(model):
    kind = type(model)
    model.__class__ = type("Other", (kind,), {"read_out": lambda self, *a, **o: 1 + kind.read_out(self, *a, **o)})


def other_distributions(model):
    distribution = model.observation
    components = distribution.components
    distribution.components = lambda parameters: components(parameters + 1)


CHANGES = [
    hook_the_read_out,
    bias_the_output,
    attend_in_another_way,
    scale_in_another_way,
    read_out_in_another_way,
    other_distributions,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_user_has_changed_is_not_overlooked(change):
    model = random_model(d_model=5, d_ff=4)
    x, noise = sequences(3, 12), model.attention.draw_noise(3, 7, 12, torch.Generator().manual_seed(2))

    def increments():
        return particle_filter(model, x, 7, torch.Generator().manual_seed(1), noise=noise).log_increments

    before = increments()
    change(model)
    with disabled():
        expected = increments()
    torch.testing.assert_close(increments(), expected)
    assert (before - expected).abs().max() > 0.01  # the change is one that could be overlooked


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("window", [None, 4])
def test_forecasts_of_changed_models_remember_their_history(change, window):
    """Paths share their particles' past; where torch takes the steps it must see that past, too."""
    model, x = random_model(d_model=5, d_ff=4, window=window), sequences(3, 12)
    change(model)
    paths = model.forecast(x, 4, 6, generator=1)
    with disabled():
        expected = model.forecast(x, 4, 6, generator=1)
    torch.testing.assert_close(paths, expected)
