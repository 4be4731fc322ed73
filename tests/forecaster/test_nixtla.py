"""Tables under an alias, as Nixtla's own utilsforecast evaluates and draws them."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import head, make, rows_between, walks
from utilsforecast.evaluation import evaluate
from utilsforecast.losses import coverage, mae, mqloss, quantile_loss, scaled_crps
from utilsforecast.plotting import plot_series

LEVELS = [80, 95]


@pytest.fixture(scope="module")
def table():
    walk = walks(44, 40)
    return walk.assign(ds=pd.date_range("2024-01-01", periods=44, freq="D")[walk["ds"]])


@pytest.fixture(scope="module")
def fitted(table):
    return make(freq="D").fit(rows_between(table, 0, 36), progress=False)


def test_forecasts_are_evaluated_as_they_are(fitted, table):
    forecast = fitted.predict(alias="SMC", level=LEVELS, quantiles=[0.1, 0.5, 0.9, 0.975])
    ends = [f"SMC-{side}-{level}" for level in LEVELS for side in ("lo", "hi")]
    assert forecast.columns.tolist() == ["unique_id", "ds", "SMC", *ends, "SMC-lo-0"]
    plain = fitted.predict(level=LEVELS, quantiles=[0.1, 0.5, 0.9])
    np.testing.assert_array_equal(forecast["SMC"], plain["y"])
    np.testing.assert_array_equal(forecast["SMC-lo-80"], plain["y-q-10"])
    np.testing.assert_array_equal(forecast["SMC-hi-80"], plain["y-q-90"])
    np.testing.assert_array_equal(forecast["SMC-lo-0"], plain["y-q-50"])
    both = forecast.merge(table, on=["unique_id", "ds"])
    found = evaluate(both, [mae, mqloss, coverage, scaled_crps], level=LEVELS)
    # The alias is the only model; the errors are those of numpy.
    assert [name for name in found.columns if name not in ("unique_id", "metric")] == ["SMC"]
    errors = both.assign(error=(both["SMC"] - both["y"]).abs()).groupby("unique_id")["error"].mean()
    assert (errors > 0).all()
    np.testing.assert_allclose(found[found["metric"] == "mae"].set_index("unique_id")["SMC"], errors)
    inside = ((both["y"] >= both["SMC-lo-80"]) & (both["y"] <= both["SMC-hi-80"])).groupby(both["unique_id"]).mean()
    held = found[found["metric"] == "coverage_level80"].set_index("unique_id")["SMC"]
    np.testing.assert_allclose(held, inside)


def test_quantile_losses_find_their_columns(fitted, table):
    both = fitted.predict(alias="SMC", level=[80]).merge(table, on=["unique_id", "ds"])
    found = quantile_loss(both, models={"SMC": "SMC-lo-80"}, q=0.1)["SMC"]
    missed = both["y"] - both["SMC-lo-80"]
    expected = np.maximum(0.1 * missed, -0.9 * missed).groupby(both["unique_id"]).mean()
    np.testing.assert_allclose(found, expected)


def test_forecasts_are_drawn_as_they_are(fitted, table):
    forecast = fitted.predict(alias="SMC", level=LEVELS, quantiles=[0.1])
    figure = plot_series(rows_between(table, 0, 36), forecast, level=LEVELS)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["y", "SMC", "SMC_level_80", "SMC_level_95"]


def test_backtests_are_evaluated_as_they_are(fitted, table):
    named = fitted.backtest(table, n_windows=2, alias="SMC", level=[80], n_paths=50, progress=False)
    plain = fitted.backtest(table, n_windows=2, level=[80], n_paths=50, progress=False)
    assert named.forecasts.columns.tolist() == ["unique_id", "cutoff", "ds", "y", "SMC", "SMC-lo-80", "SMC-hi-80"]
    np.testing.assert_array_equal(named.forecasts["SMC"], plain.forecasts["y"])
    np.testing.assert_array_equal(named.forecasts["y"], plain.forecasts["y-observed"])
    pd.testing.assert_frame_equal(named.metrics, plain.metrics)
    found = evaluate(named.forecasts, [mae], agg_fn="mean")
    errors = (named.forecasts["SMC"] - named.forecasts["y"]).abs()
    by_cutoff = errors.groupby(named.forecasts["cutoff"].to_numpy()).mean()
    assert len(found) == len(by_cutoff) == 3  # two cutoffs of each series, one of them shared
    np.testing.assert_allclose(found["SMC"], by_cutoff)


@pytest.mark.parametrize("alias", [None, "SMC"])
def test_backtests_and_forecasts_name_means_and_intervals_alike(table, alias):
    both = table.assign(z=table["y"] * 2)
    for targets in (["y"], ["y", "z"]):
        forecaster = make(freq="D", targets=targets).fit(rows_between(both, 0, 36), progress=False)
        forecast = forecaster.predict(rows_between(both, 0, 36), level=[80], alias=alias, n_paths=50)
        tested = forecaster.backtest(rows_between(both, 0, 40), level=[80], alias=alias, n_paths=50, progress=False)
        # The last cutoff is the end of what was forecast from: the numbers are the same, under the same names.
        pd.testing.assert_frame_equal(tested.forecasts[forecast.columns], forecast)


def test_several_targets_are_told_apart(table):
    both = table.assign(z=table["y"] * 2)
    forecaster = make(freq="D", targets=["y", "z"]).fit(head(both, 36), progress=False)
    found = forecaster.predict(alias="SMC", level=[80]).merge(both, on=["unique_id", "ds"])
    models = ["z-SMC"]
    assert (evaluate(found, [mae], models=models, target_col="z")["z-SMC"] > 0).all()
    assert {"y-SMC", "y-SMC-lo-80", "z-SMC-hi-80"} <= set(found.columns)


@pytest.mark.parametrize(("alias", "error"), [("y", ValueError), ("ds", ValueError), ("", TypeError), (3, TypeError)])
def test_an_alias_is_a_name_of_its_own(fitted, table, alias, error, without_shape_checks):
    with pytest.raises(error, match="alias must"):
        fitted.predict(alias=alias)
    with pytest.raises(error, match="alias must"):
        fitted.backtest(table, alias=alias, progress=False)
