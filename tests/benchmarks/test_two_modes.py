"""When a density has two modes."""

import torch

from benchmarks.two_modes import LEAST_DIP, dips

GRID = torch.linspace(-8, 8, 801)


def normal(mean, deviation=1.0):
    return torch.exp(-0.5 * ((GRID - mean) / deviation) ** 2) / deviation


def test_the_depth_between_two_equal_modes():
    density = normal(-3) + normal(3)
    depth = 1 - density[400] / density.max()  # the lowest value between them is in the middle
    torch.testing.assert_close(dips(density), depth)


def test_of_two_unequal_modes_the_lower_one_counts():
    density = normal(-4) + 0.4 * normal(4)
    between = density[200:600].min()
    torch.testing.assert_close(dips(density), 1 - between / (0.4 * normal(4)).max(), atol=1e-4, rtol=0)


def test_one_mode_has_no_dip_and_a_speck_is_no_mode():
    assert dips(normal(0)) == 0
    assert dips(normal(0) + normal(0, 3.0)) == 0  # a heavy tail is none
    assert dips(normal(-4) + 0.005 * normal(4)) < LEAST_DIP
