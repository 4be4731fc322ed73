"""Scores of the panels against loops over series, steps and levels, and by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from benchmarks.panels.methods.smc import own_coverage
from benchmarks.panels.metrics import LEVELS, coverage, mase, seasonal_errors, wql


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_levels_are_nine_deciles():
    assert LEVELS == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def test_wql_is_that_of_a_loop(random):
    y = random.normal(size=(4, 5))
    y[1, 2] = y[3, 0] = np.nan
    quantiles = np.sort(random.normal(size=(4, 5, 9)), axis=-1)
    averages = []
    for place, level in enumerate(LEVELS):
        loss = size = 0.0
        for series in range(4):
            for step in range(5):
                true, forecast = y[series, step], quantiles[series, step, place]
                if math.isnan(true):
                    continue
                loss += 2 * (level * (true - forecast) if true > forecast else (1 - level) * (forecast - true))
                size += abs(true)
        averages.append(loss / size)
    assert wql(y, quantiles) == pytest.approx(sum(averages) / 9, rel=1e-12)


def test_wql_of_a_point_forecast_is_the_normalised_absolute_error(random):
    y, point = random.normal(size=(2, 3, 4))
    everywhere = np.repeat(point[..., None], 9, axis=-1)
    assert wql(y, everywhere) == pytest.approx(np.abs(y - point).sum() / np.abs(y).sum(), rel=1e-12)
    assert wql(y, np.repeat(y[..., None], 9, axis=-1)) == 0


def test_wql_prefers_the_true_quantiles(random):
    y = random.normal(size=(2000, 1))
    true = np.array([-1.2816, -0.8416, -0.5244, -0.2533, 0, 0.2533, 0.5244, 0.8416, 1.2816])
    scores = [wql(y, np.broadcast_to(factor * true, (2000, 1, 9))) for factor in (0.5, 1, 2)]
    assert scores[1] == min(scores)


def table(**series):
    parts = [pd.DataFrame({"unique_id": name, "y": np.asarray(values, float)}) for name, values in series.items()]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("season", [1, 3])
def test_seasonal_errors_are_those_of_a_loop(random, season):
    long, short = random.normal(size=11), random.normal(size=5)
    long[4] = np.nan
    expected = []
    for values in (long, short):
        errors = [abs(values[t] - values[t - season]) for t in range(season, len(values))]
        observed = [error for error in errors if not math.isnan(error)]
        expected.append(sum(observed) / len(observed))
    # The second name sorts before the first: the order is that of the table.
    np.testing.assert_allclose(seasonal_errors(table(z=long, a=short), season), expected, rtol=1e-12)


def test_series_without_a_pair_has_no_seasonal_error():
    found = seasonal_errors(table(a=[1, 2], b=[1, 2, 3, 4]), 3)
    assert math.isnan(found[0])
    assert found[1] == 3


def test_mase_is_that_of_a_loop(random):
    y, median = random.normal(size=(2, 5, 4))
    y[0, 1] = np.nan
    scale = np.array([0.5, 2.0, 0.0, np.nan, 1.0])  # constant and too short series are not scored
    scaled = [
        abs(y[series, step] - median[series, step]) / scale[series]
        for series in (0, 1, 4)
        for step in range(4)
        if not math.isnan(y[series, step])
    ]
    assert len(scaled) == 11
    assert mase(y, median, scale) == pytest.approx(sum(scaled) / 11, rel=1e-12)


def test_coverage_counts_ends_and_leaves_out_missing_values():
    y = np.array([[1.0, 2.0, np.nan], [3.0, 4.0, 5.0]])
    lower, upper = np.full((2, 3), 2.0), np.full((2, 3), 4.0)
    assert coverage(y, lower, upper) == pytest.approx(3 / 5)


def test_missing_forecast_is_an_error():
    y, quantiles = np.ones((1, 2)), np.ones((1, 2, 9))
    quantiles[0, 1, 3] = np.nan
    with pytest.raises(ValueError, match="a forecast is missing"):
        wql(y, quantiles)
    y[0, 1] = np.nan  # nothing to score there
    assert wql(y, quantiles) == 0


def test_other_shapes_are_an_error():
    with pytest.raises(ValueError, match="shapes"):
        wql(np.ones((2, 3)), np.ones((3, 2, 9)))


def test_what_intervals_of_counts_are_expected_to_cover():
    """0 in nine of ten paths: the 80 % interval is [0, 0], and holds all of these."""
    paths = np.zeros((1, 100, 2))
    paths[0, :9, 0] = 5.0
    paths[0, :, 1] = np.arange(100)  # numbers without ties
    assert own_coverage(paths[..., :1], 80) == pytest.approx(0.91)
    assert own_coverage(paths[..., 1:], 80) == pytest.approx(0.8)
