"""Intervals hold what they promise on rows that the fit has not seen: one step ahead and many, whatever the units."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import series, walks

from smc_transformer.forecaster import Forecaster

SERIES, ROWS, HORIZON, WINDOWS, SEASON = 40, 100, 5, 4, 6
CALIBRATED = SERIES * HORIZON
"""Held-out values that widths were taken from."""
LEVELS = (80, 95, 99)


def panel(seed, name="s"):
    """Autoregressions around a season, in units from millionths to millions; the noise has tails as most real ones."""
    random = np.random.default_rng(seed)
    tables, length = [], ROWS + HORIZON * WINDOWS
    for number in range(SERIES):
        noise, y = random.standard_t(8, size=length + 20), np.zeros(length + 20)
        for t in range(1, len(y)):
            y[t] = 0.7 * y[t - 1] + noise[t]
        season = 3 * np.sin(2 * np.pi * np.arange(length) / SEASON + random.uniform(0, 6))
        tables.append(series(f"{name}{number}", 10.0 ** random.uniform(-6, 6) * (20 + y[20:] + season)))
    return pd.concat(tables, ignore_index=True)


def standard_errors(share, level, n_independent):
    """By how many a share of values inside differs from the level; the widths were taken from a sample too."""
    level = level / 100
    return (share - level) / np.sqrt(level * (1 - level) * (1 / n_independent + 1 / CALIBRATED))


@pytest.fixture(scope="module", params=["local", "standard"])
def fitted(request):
    table = panel(seed=0)
    settings = {
        "scaling": request.param,
        "seasons": [SEASON] if request.param == "local" else None,
        "config": {"d_model": 12, "d_ff": 12, "window": 8, "n_particles": 8},
        "training": {"likelihood_steps": 150, "forecast_steps": 75, "validations": 3},
    }
    forecaster = Forecaster(16, HORIZON, freq=1, n_particles=32, **settings)
    return forecaster.fit(table[table["ds"] < ROWS], progress=False), table


@pytest.mark.slow
def test_one_step_ahead(fitted):
    forecaster, table = fitted
    for name, given, first in (("later rows", table, ROWS), ("other series", panel(seed=1, name="other"), 10)):
        scores = forecaster.score(given, level=LEVELS)
        scores = scores[scores["ds"] >= first]
        assert len(scores) >= SERIES * HORIZON * WINDOWS
        for level in LEVELS:
            inside = 1 - scores[f"outside-{level}"].mean()
            assert abs(standard_errors(inside, level, len(scores))) < 4, (name, level, inside)
        # The widths are known to about 7 % (0.015 of the values outside 95 %, of which there are 0.23 for each unit of
        # log width), so 1 % outside may be 0.5 % or 2 %. It was none at all.
        assert 0.002 < scores["outside-99"].mean() < 0.03, name
        assert abs(scores["pit"].mean() - 0.5) < 4 * np.sqrt((1 / len(scores) + 1 / CALIBRATED) / 12), name


@pytest.mark.slow
def test_many_steps_ahead(fitted):
    forecaster, table = fitted
    found = forecaster.backtest(table, n_windows=WINDOWS, level=LEVELS, n_paths=300, progress=False).forecasts
    assert len(found) == SERIES * WINDOWS * HORIZON
    for level in LEVELS:
        inside = found["y-observed"].between(found[f"y-lo-{level}"], found[f"y-hi-{level}"]).mean()
        # The steps of one forecast hang together: it counts once.
        assert abs(standard_errors(inside, level, SERIES * WINDOWS)) < 4, (level, inside)
    assert abs(found["y-pit"].mean() - 0.5) < 4 * np.sqrt((1 / (SERIES * WINDOWS) + 1 / CALIBRATED) / 12)


@pytest.mark.parametrize("scaling", ["local", "standard"])
def test_intervals_follow_the_size_of_the_series_itself(scaling):
    """Beside ordinary series: one of 2e-10, one that is constant, one that is always 0, one of 7 that hardly moves."""
    ordinary = walks(60, 60, 60, 60, seed=1)
    a = ordinary[ordinary["unique_id"] == "b"]["y"].to_numpy() - 10
    odd = {
        "tiny": 2e-10 * a,
        "constant": np.full(60, 5.0),
        "zero": np.zeros(60),
        "still": 7 + 2e-10 * a,
    }
    table = pd.concat([ordinary, *(series(name, values) for name, values in odd.items())], ignore_index=True)
    training = {"likelihood_steps": 30, "forecast_steps": 10, "validations": 1, "batch_size": 16}
    config = {"d_model": 8, "d_ff": 8, "window": 6, "n_particles": 5}
    forecaster = Forecaster(10, 4, freq=1, scaling=scaling, config=config, training=training, n_particles=16)
    found = forecaster.fit(table, progress=False).predict(level=[95])
    width = (found["y-hi-95"] - found["y-lo-95"]).groupby(found["unique_id"]).mean()
    spread = table.groupby("unique_id")["y"].std()
    usual = (width / spread)[["a", "b", "c", "d"]].median()
    assert usual / 3 < width["tiny"] / spread["tiny"] < 3 * usual
    # Of a network of 40 steps, through the local view 1e-5 of what is typical for its size; they were 0.4.
    small = 1e-4 if scaling == "local" else 0.05
    assert width["constant"] < small * 5
    assert width["still"] < small * 7
    assert width["zero"] < small * width[["a", "b", "c", "d"]].median()
    centre = found.groupby("unique_id")["y"].mean()
    assert centre["constant"] == pytest.approx(5, rel=0.01)
    assert abs(centre["zero"]) < width["zero"]
