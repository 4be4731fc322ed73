"""Scaling: exact inverses, slopes, and statistics of training rows only."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import make, series, walks

from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.table import Series
from smc_transformer.support.choices import SCALINGS


def values(n_rows=400):
    random = np.random.default_rng(0)
    return np.stack((random.gamma(2.0, 50.0, n_rows), random.poisson(3.0, n_rows).astype(float)), axis=1)


@pytest.mark.parametrize("kind", SCALINGS)
def test_inverse_undoes_transform(kind):
    x = values()
    scaler = Scaler.fit(x, (kind, kind)).in_units(np.array([0.3, 2.0]))
    np.testing.assert_allclose(scaler.inverse(scaler.transform(x)), x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", SCALINGS)
def test_slope_is_the_derivative(kind):
    x = values()
    scaler = Scaler.fit(x, (kind, kind))
    found = (scaler.transform(x + 1e-4) - scaler.transform(x)) / 1e-4
    np.testing.assert_allclose(np.log(found), scaler.log_slope(x), atol=1e-4)


@pytest.mark.parametrize("kind", SCALINGS)
def test_maps_are_monotone_so_that_quantiles_of_the_scaled_are_the_scaled_quantiles(kind):
    x = np.sort(values(), axis=0)
    scaled = Scaler.fit(x, (kind, kind)).transform(x)
    assert (np.diff(scaled, axis=0) >= 0).all()


def test_statistics():
    x = values()
    x[7, 0] = np.nan
    seen = x[~np.isnan(x[:, 0])]
    standard = Scaler.fit(x, ("standard", "standard")).transform(seen)
    np.testing.assert_allclose(standard[:, 0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(standard[:, 0].std(), 1)
    robust = Scaler.fit(x, ("robust", "robust")).transform(seen)
    np.testing.assert_allclose(np.median(robust[:, 0]), 0, atol=1e-12)
    np.testing.assert_allclose(np.subtract(*np.quantile(robust[:, 0], [0.75, 0.25])), 1.349, rtol=1e-3)
    np.testing.assert_array_equal(Scaler.fit(x, ("none", "none")).transform(seen), seen)


def test_a_constant_column_is_not_stretched_and_one_without_values_stays():
    x = np.stack((np.full(5, 0.1), np.full(5, np.nan)), axis=1)
    for kind in SCALINGS:
        scaler = Scaler.fit(x, (kind, kind))
        np.testing.assert_array_equal(scaler.spread, 1.0)


@pytest.mark.parametrize("kind", ["standard", "robust"])
def test_a_column_that_moves_by_little_is_stretched(kind):
    random = np.random.default_rng(0)
    moves = random.normal(size=50)
    for level, size in ((0.0, 2e-10), (0.0, 1e-100), (7.0, 2e-10), (-1e12, 1.0)):
        x = (level + size * moves)[:, None]
        scaled = Scaler.fit(x, (kind,)).transform(x)
        assert 0.5 < scaled.std() < 2, (level, size)


def test_a_series_that_never_changes_is_divided_by_a_share_of_its_size():
    table = walks(60, 60, 60, 60)
    table["y"] = table["y"].mask(table["unique_id"] == "c", 5.0).mask(table["unique_id"] == "d", 0.0)
    panel = make(scaling="standard").fit(table, progress=False).fitted.panel
    spreads = {name: scaler.spread[0] / panel.units[0] for name, scaler in panel.scalers.items()}
    assert spreads["c"] == pytest.approx(0.05)
    assert spreads["d"] == pytest.approx(0.01 * np.median([spreads[name] for name in "abc"]))
    new = Series("e", pd.Index(range(9)), np.zeros((9, 1)), np.zeros((9, 0)))
    known = [panel.scalers[name].spread for name in "abcd"]
    assert panel.begin([new])[1][0].spread[0] == pytest.approx(0.01 * np.median(known))


def test_statistics_come_from_training_rows_only():
    table = walks(60, 60)
    spoiled = table.copy()
    held_out = table.groupby("unique_id").cumcount() >= 60 - 8
    spoiled.loc[held_out, "y"] *= 1000
    one, other = (make(scaling="standard").fit(df, val_size=8, progress=False) for df in (table, spoiled))
    for name in ("a", "b"):
        for part in ("shift", "spread"):
            found = [getattr(f.fitted.panel.scalers[name], part) for f in (one, other)]
            np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(one.fitted.panel.units, other.fitted.panel.units)


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_forecasts_move_with_the_units_of_a_series(scaling):
    forecaster = make(scaling=scaling).fit(walks(60, 60), progress=False)
    y = walks(40, seed=5)["y"].to_numpy()
    plain, moved = (
        forecaster.predict(series("new", values), quantiles=[0.1]).drop(columns=["unique_id", "ds"]).to_numpy()
        for values in (y, 1e3 * y - 1e4)
    )
    np.testing.assert_allclose(moved, 1e3 * plain - 1e4, rtol=1e-3, atol=1)


def test_counts_on_a_logarithm_stay_counts():
    random = np.random.default_rng(0)
    table = series("a", random.poisson(2.0, 120))
    forecaster = make(scaling="log1p").fit(table, progress=False)
    assert forecaster.model.config.observation == "gaussian"
    forecast = forecaster.forecast(n_paths=400)
    assert (forecast.paths >= 0).all()
    table = forecast.table([80], quantiles=[0.5])
    # The mean is that of the counts, not the count of a mean logarithm.
    np.testing.assert_allclose(table["y"], forecast.paths[0, :, :, 0].mean(axis=0))
    assert (table["y"] > np.expm1(np.log1p(forecast.paths[0, :, :, 0]).mean(axis=0))).all()
    # Quantiles of a monotone map are mapped quantiles, up to the interpolation between two draws.
    scaler = forecaster.fitted.panel.scalers["a"]
    scaled = np.quantile(scaler.transform(forecast.paths[0]), 0.5, axis=0)
    np.testing.assert_allclose(table["y-q-50"], scaler.inverse(scaled)[:, 0], rtol=0.01)


def test_scaling_by_column():
    table = walks(60).assign(z=lambda df: df["y"] - 100)
    forecaster = make(targets=["y"], past_inputs=["z"], scaling={"y": "robust"}).fit(table, progress=False)
    assert forecaster.fitted.panel.scalers["a"].kinds == ("robust", "standard")
