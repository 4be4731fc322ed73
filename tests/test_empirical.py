"""Empirical distributions against naive loops, numpy and scoringrules."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scoringrules
import torch

from smc_transformer.empirical import Point, Residuals, Samples, ShiftedResiduals
from smc_transformer.nn.observation import GaussianMixture
from smc_transformer.predictive import Predictive


def draws_and_values(batch=3, n_draws=41, n_steps=4, n_targets=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randn(batch, n_draws, n_steps, n_targets, generator=generator, dtype=torch.float64)
    return draws, 1.5 * torch.randn(batch, n_steps, n_targets, generator=generator, dtype=torch.float64)


def naive_crps(draws, value):
    """The integral of (F(y) - 1{y >= value})^2, summed over the steps of F."""
    places = sorted([*draws, value])
    total = 0.0
    for left, right in pairwise(places):
        share = sum(draw <= left for draw in draws) / len(draws)
        total += (share - (left >= value)) ** 2 * (right - left)
    return total


def test_crps_of_samples_is_the_integral():
    draws, values = draws_and_values()
    found = Samples(draws).crps(values)
    for index in np.ndindex(*values.shape):
        b, t, k = index
        assert found[index].item() == pytest.approx(naive_crps(draws[b, :, t, k].tolist(), values[index].item()))


def test_crps_of_samples_is_that_of_scoringrules():
    draws, values = draws_and_values(n_draws=500)
    expected = scoringrules.crps_ensemble(values.numpy(), draws.movedim(1, -1).numpy(), estimator="nrg")
    np.testing.assert_allclose(Samples(draws).crps(values).numpy(), expected, rtol=1e-10)


def test_interval_of_samples_is_that_of_numpy():
    draws, _ = draws_and_values(n_draws=237)
    lower, upper = Samples(draws).interval(0.8)
    expected = np.quantile(draws.numpy(), [0.1, 0.9], axis=1)
    np.testing.assert_allclose(lower.numpy(), expected[0])
    np.testing.assert_allclose(upper.numpy(), expected[1])


def test_cdf_of_samples_counts_ties_half():
    distribution = Samples(torch.tensor([0.0, 1.0, 1.0, 2.0]).view(1, 4, 1, 1).expand(1, 4, 5, 1))
    values = torch.tensor([-0.5, 0.5, 1.0, 1.5, 2.0]).view(1, 5, 1)
    assert distribution.cdf(values).flatten().tolist() == [0.0, 0.25, 0.5, 0.75, 0.875]


def test_samples_keep_steps_and_targets_together():
    draws, _ = draws_and_values(batch=2, n_draws=5)
    found = Samples(draws).sample(200, 0)
    rows = {b: {tuple(row.flatten().tolist()) for row in draws[b]} for b in range(2)}
    for b in range(2):
        seen = {tuple(row.flatten().tolist()) for row in found[b]}
        assert seen == rows[b]


def test_all_distributions_speak_the_same_language():
    draws, _ = draws_and_values()
    mixture = GaussianMixture(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2, 1), torch.eye(1))
    residuals = ShiftedResiduals(draws.mean(dim=1), [Residuals(draws[0, :, 0])], [0] * 4)
    for distribution in (Samples(draws), Point(draws.mean(dim=1)), residuals, mixture):
        assert isinstance(distribution, Predictive)


def test_a_point_is_scored_by_its_absolute_error():
    mean, values = torch.zeros(1, 2, 1), torch.tensor([1.5, -2.0]).view(1, 2, 1)
    point = Point(mean)
    assert point.crps(values).flatten().tolist() == [1.5, 2.0]
    assert point.interval(0.95) is None
    assert point.cdf(values) is None
    assert point.log_prob(values) is None
    assert point.sample(3).shape == (1, 3, 2, 1)


@pytest.mark.parametrize("shared", [True, False])
def test_shifted_residuals_are_the_samples_they_stand_for(shared):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 60, 2, generator=generator, dtype=torch.float64)
    rows[:, :10] = rows[:, 10:20]  # ties
    location = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    which = [0, 0, 0, 0] if shared else [0, 1, 1, 0]
    distribution = ShiftedResiduals(location, [Residuals(part) for part in rows], which)
    samples = Samples(location.unsqueeze(1) + rows[which].movedim(1, 0))
    values = location + torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(distribution.mean, samples.mean)
    torch.testing.assert_close(distribution.crps(values), samples.crps(values))
    torch.testing.assert_close(distribution.cdf(values), samples.cdf(values))
    for found, expected in zip(distribution.interval(0.9), samples.interval(0.9), strict=True):
        torch.testing.assert_close(found, expected)


def test_shifted_residuals_far_from_everything():
    distribution = ShiftedResiduals(torch.zeros(1, 1, 1), [Residuals(torch.randn(50, 1))], [0])
    for value, probability in ((-1e3, 0.0), (1e3, 1.0)):
        x = torch.full((1, 1, 1), value)
        assert distribution.cdf(x).item() == probability
        assert distribution.crps(x).item() == pytest.approx(1e3, rel=0.01)


def test_shifted_residuals_draw_whole_rows():
    rows = torch.arange(20.0).view(10, 2)
    found = ShiftedResiduals(torch.zeros(2, 3, 2), [Residuals(rows)], [0, 0, 0]).sample(500, 0)
    assert torch.equal(found[..., 1], found[..., 0] + 1)
    counts = (found[..., 0] / 2).long().flatten().bincount(minlength=10).double() / 3000
    torch.testing.assert_close(counts, torch.full((10,), 0.1).double(), atol=5 * math.sqrt(0.09 / 3000), rtol=0)


def test_residuals_need_a_complete_row():
    with pytest.raises(ValueError, match="no complete row"):
        Residuals(torch.empty(0, 2))


def test_the_crps_of_a_row_does_not_depend_on_the_rows_beside_it():
    generator = torch.Generator().manual_seed(0)
    draws, x = torch.randn(16, 50, 2, 1, generator=generator).double(), torch.zeros(16, 2, 1).double()
    together = Samples(draws).crps(x)
    alone = [Samples(draws[row : row + 1]).crps(x[row : row + 1]) for row in range(16)]
    assert torch.equal(together, torch.cat(alone))
