"""The kernels' Gamma and Poisson numbers: of the right distribution, and each row's own."""

import numpy as np
import pytest
import torch
from scipy import stats

from smc_transformer.kernels import building, noise
from smc_transformer.nn.streams import Streams

pytestmark = pytest.mark.skipif(building.c_compiler() is None, reason="no C compiler on this machine")

ROWS, N = 4, 50_000
LEVEL = 1e-4
"""Of each test: with these seeds none fails, and a wrong sampler has a p-value of 0."""


def streams():
    return Streams.named([f"series {number}" for number in range(ROWS)], seed=0, purpose="test")


@pytest.mark.parametrize("shape", [0.05, 0.3, 1.0, 4.0, 50.0, 1e4])
def test_gamma_numbers_have_their_distribution(shape):
    drawn = streams().gammas(torch.full((ROWS, N), shape, dtype=torch.double)).numpy()
    assert stats.kstest(drawn.flatten(), stats.gamma(shape).cdf).pvalue > LEVEL
    # Rows are independent: 4.5 standard errors of a correlation of 0.
    correlations = np.corrcoef(drawn)[np.triu_indices(ROWS, 1)]
    assert (np.abs(correlations) < 4.5 / np.sqrt(N)).all()


@pytest.mark.parametrize("rate", [0.01, 1.0, 9.99, 10.0, 30.0, 1000.0])
def test_poisson_numbers_have_their_distribution(rate):
    drawn = streams().poissons(torch.full((ROWS, N), rate, dtype=torch.double)).numpy().flatten()
    law = stats.poisson(rate)
    values = np.arange(law.ppf(1e-4), law.ppf(1 - 1e-4) + 1)
    expected = law.pmf(values) * len(drawn)
    found = (drawn[:, None] == values[expected >= 20]).sum(axis=0)
    expected = expected[expected >= 20]
    # All other values together are one more class.
    rest = len(drawn) - np.array([found.sum(), expected.sum()])
    classes = np.append(found, rest[0]), np.append(expected, rest[1])
    assert stats.chisquare(*classes).pvalue > LEVEL


@pytest.mark.parametrize("draw", [noise.gamma_rows, noise.poisson_rows])
def test_a_number_depends_on_its_own_row_and_parameter_alone(draw):
    own, random = streams(), np.random.default_rng(0)
    parameters = torch.from_numpy(random.uniform(0.1, 40, size=(ROWS, 37)))
    together = draw(parameters, own.keys, own.steps, 3)
    for row in range(ROWS):
        alone = draw(parameters[row : row + 1], own.keys[row : row + 1], own.steps[row : row + 1], 3)
        assert torch.equal(alone[0], together[row])
    changed = parameters.clone()
    changed[:, 5] *= 2
    other = draw(changed, own.keys, own.steps, 3)
    assert (other != together).any(dim=0).nonzero().flatten().tolist() == [5]
    assert not torch.equal(draw(parameters, own.keys, own.steps, 4), together)


def test_parameters_without_a_distribution_give_nan_and_0_gives_0():
    own = streams()
    parameters = torch.tensor([[0.0, -1.0, float("nan"), float("inf")]] * ROWS)
    for found in (own.gammas(parameters), own.poissons(parameters)):
        assert (found[:, 0] == 0).all()
        assert found[:, 1:].isnan().all()
