"""Charts of particles show what the filter found."""

import pytest
import torch
from matplotlib.figure import Figure

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.charts.particles import draw_genealogy, draw_predictive, draw_unique_ancestors
from smc_transformer.charts.style import band_shades


@pytest.fixture
def axes():
    return Figure().subplots()


@pytest.fixture(scope="module")
def found():
    x = torch.randn(2, 6, 1, generator=torch.Generator().manual_seed(0))
    return x, SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4), generator=0).filter(x, 7, generator=1)


def test_the_fan_of_a_sequence_is_drawn_around_its_predicted_mean(axes, found):
    x, result = found
    draw_predictive(axes, result.predictive, x[:, 1:], sequence=1)
    mean, observed = axes.lines
    torch.testing.assert_close(torch.tensor(mean.get_ydata()), result.predictive.mean[1, :, 0])
    torch.testing.assert_close(torch.tensor(observed.get_ydata()), x[1, 1:, 0])
    assert len(axes.collections) == 4  # a band for each level


def test_a_genealogy_has_a_point_for_each_particle_and_a_branch_for_each_parent(axes, found):
    _, result = found
    draw_genealogy(axes, result.ancestors, result.log_weights)
    assert len(axes.collections[0].get_offsets()) == 7 * 5
    assert len(axes.lines) == 7 * 4


def test_unique_ancestors_are_averaged_over_sequences(axes, found):
    _, result = found
    draw_unique_ancestors(axes, result.unique_ancestors, n_particles=7)
    mean = torch.tensor(axes.lines[0].get_ydata())
    torch.testing.assert_close(mean, result.unique_ancestors.double().mean(dim=0))


def test_wider_bands_are_lighter():
    shades = band_shades([50, 95, 80])
    assert list(shades) == [95, 80, 50]
    assert sum(shades[95]) > sum(shades[80]) > sum(shades[50])
