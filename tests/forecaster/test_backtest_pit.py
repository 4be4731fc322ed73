"""The PIT of whole numbers: drawn within the jump of the distribution, or calibrated forecasts look wrong."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import SHORT, TINY, make, series
from scipy import stats

from smc_transformer.empirical import Samples
from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.scores import pit_histogram

N_BINS = 10
MOST = stats.chi2.ppf(1 - 1e-4, N_BINS - 1)
"""Of the chi-square of a histogram whose values are uniform: more once in ten thousand times."""
OBSERVATIONS = {
    "poisson": lambda random, size: random.poisson(1.5, size),
    "negative binomial": lambda random, size: random.negative_binomial(2, 0.4, size),
    "classes": lambda random, size: random.choice(3, size, p=[0.2, 0.5, 0.3]),
    "rounded at zero": lambda random, size: np.maximum(random.normal(0.5, 1.0, size), 0.0),
}


def chi_square(pit):
    counts = np.array(pit_histogram(pit.flatten(), N_BINS))
    expected = counts.sum() / N_BINS
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("draw", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_calibrated_forecasts_of_whole_numbers_have_a_uniform_pit(draw):
    """Draws and observations. 1000 draws put a bin's share off by some 0.001, which 2000 values cannot see:
    it adds 2000 * 10 * 0.001^2 / 0.1, about 0.2, to a chi-square that may be 33."""
    random = np.random.default_rng(0)
    distribution = Samples(torch.from_numpy(draw(random, (2000, 1000, 1, 1)).astype(float)))
    observed = torch.from_numpy(draw(random, (2000, 1, 1)).astype(float))
    assert chi_square(distribution.pit(observed, 0)) < MOST
    assert chi_square(distribution.cdf(observed)) > 10 * MOST  # the middle of the jump is not uniform
    below, up_to = (
        (distribution.draws < observed.unsqueeze(1)).double(),
        (distribution.draws <= observed.unsqueeze(1)).double(),
    )
    assert (distribution.pit(observed, 0) >= below.mean(dim=1)).all()
    assert (distribution.pit(observed, 0) <= up_to.mean(dim=1)).all()


def test_a_distribution_that_is_off_is_still_seen():
    random = np.random.default_rng(1)
    distribution = Samples(torch.from_numpy(random.poisson(2.0, (2000, 1000, 1, 1)).astype(float)))
    assert chi_square(distribution.pit(torch.from_numpy(random.poisson(1.5, (2000, 1, 1)).astype(float)), 0)) > 3 * MOST


def test_without_ties_nothing_is_drawn():
    generator = torch.Generator().manual_seed(0)
    distribution = Samples(torch.randn(3, 50, 4, 2, generator=generator, dtype=torch.float64))
    x = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    assert torch.equal(distribution.pit(x, 1), distribution.cdf(x))
    x[0, 0, 0] = distribution.draws[0, 7, 0, 0]
    assert not torch.equal(distribution.pit(x, 1), distribution.pit(x, 2))
    assert torch.equal(distribution.pit(x, 1), distribution.pit(x, 1))


def test_backtests_of_counts_are_uniform_if_the_forecasts_are_the_true_distribution(monkeypatch):
    """The forecaster's paths are replaced by draws of the truth; all else is the real backtest."""
    random = np.random.default_rng(2)
    table = pd.concat([series(f"s{number}", random.poisson(1.5, 260)) for number in range(8)], ignore_index=True)
    settings = {"scaling": "none", "config": {**TINY, "observation": "negative_binomial"}, "training": SHORT}
    forecaster = make(**settings, horizon=4).fit(table[table["ds"] < 60], progress=False)
    forecast = Fitted.forecast

    def true_distribution(self, *arguments, **options):
        found = forecast(self, *arguments, **options)
        return dataclasses.replace(
            found, paths=random.poisson(1.5, (*found.paths.shape[:1], 1000, 100, 1)).astype(float)
        )

    monkeypatch.setattr(Fitted, "forecast", true_distribution)
    backtest = forecaster.backtest(table, n_windows=2, step_size=100, h=100, n_paths=1, progress=False)
    pit = torch.tensor(backtest.forecasts["y-pit"].tolist())
    assert len(pit) == 1600
    assert chi_square(pit) < MOST
    monkeypatch.setattr(
        Samples, "pit", lambda distribution, x, generator: distribution.cdf(x)
    )  # as if nothing were drawn
    again = forecaster.backtest(table, n_windows=2, step_size=100, h=100, n_paths=1, progress=False)
    assert chi_square(torch.tensor(again.forecasts["y-pit"].tolist())) > 10 * MOST
