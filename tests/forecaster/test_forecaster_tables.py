"""Tables: grids with gaps, and errors that name series, column and row."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import make, series, walks

from smc_transformer.forecaster import Forecaster, TableError
from smc_transformer.forecaster.calendar import calendar_features
from smc_transformer.forecaster.panel import Panel
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import read_series

WHOLE = Settings(freq=1)


def hourly(n_rows=6, **columns):
    times = pd.date_range("2024-03-01", periods=n_rows, freq="h")
    return pd.DataFrame({"unique_id": "a", "ds": times, "y": np.arange(float(n_rows)), **columns})


def test_absent_rows_are_missing_rows():
    (found,) = read_series(hourly().drop(index=[2, 3]), Settings(freq="h"))
    assert len(found) == 6
    np.testing.assert_array_equal(found.values[:, 0], [0, 1, np.nan, np.nan, 4, 5])
    assert found.times.equals(pd.DatetimeIndex(hourly()["ds"]))


@pytest.mark.parametrize(
    ("freq", "times"),
    [
        ("MS", ["2024-01-01", "2024-02-01", "2024-04-01"]),
        ("W-MON", ["2024-01-01", "2024-01-08", "2024-01-22"]),
        ("15min", ["2024-01-01 00:05", "2024-01-01 00:20", "2024-01-01 00:50"]),
        ("D", ["2024-02-28", "2024-02-29", "2024-03-02"]),
        (5, [10, 15, 25]),
    ],
)
def test_grids(freq, times):
    times = times if freq == 5 else pd.to_datetime(times)
    table = pd.DataFrame({"unique_id": 7, "ds": times, "y": [0.0, 1.0, 3.0]})
    (found,) = read_series(table, Settings(freq=freq))
    assert found.name == 7
    np.testing.assert_array_equal(found.values[:, 0], [0, 1, np.nan, 3])


def test_series_may_be_interleaved():
    table = walks(20, 20)
    mixed = table.sort_values("ds", kind="stable")
    for one, other in zip(read_series(table, WHOLE), read_series(mixed, WHOLE), strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.values, other.values)


def changed(**cells):
    """A table of two series with some cells replaced: {column: (row, value)}."""
    table = walks(5, 5).astype({"ds": object, "unique_id": object}).assign(x=1.0)
    for column, (row, value) in cells.items():
        table[column] = table[column].astype(object)
        table.loc[row, column] = value
    return table.infer_objects()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed(ds=(7, 1)), r"series 'b' has two rows of the same time, column 'ds': row 6 \(1\) .* row 7 \(1\)"),
        (changed(ds=(7, 0)), r"series 'b' is not sorted by time, column 'ds': row 6 \(1\) .* row 7 \(0\)"),
        (changed(y=(8, np.inf)), r"series 'b', column 'y' is infinite at 3 \(row 8\)"),
        (changed(y=(3, "lots")), r"column 'y' must hold numbers, got 'lots' in row 3"),
        (changed(unique_id=(4, None)), r"column 'unique_id' is empty in row 4"),
        (changed(unique_id=(4, 1.5)), r"column 'unique_id' must hold text or whole numbers, got 1.5 in row 4"),
        (changed(x=(6, np.nan)), r"series 'b' has no value of the known input 'x' at 1"),
        (changed(x=(6, -np.inf)), r"series 'b', column 'x' is infinite at 1 \(row 6\)"),
        (changed().drop(columns="y"), r"the table has no column 'y'; it has \['unique_id', 'ds', 'x'\]"),
        (changed().iloc[:0], "the table has no rows"),
        (changed(ds=(2, None)), "column 'ds' is empty in row 2"),
        (changed().astype({"ds": float}), "freq=1 means whole-number times, but column 'ds' holds float64"),
        (changed().drop(index=1), r"series 'a' has no value of the known input 'x' at 1"),
    ],
)
def test_errors_name_the_place(table, message):
    with pytest.raises(TableError, match=message):
        read_series(table, Settings(freq=1, future_inputs=("x",)))


def test_errors_of_timestamps():
    table = hourly()
    table.loc[4, "ds"] += pd.Timedelta(minutes=7)
    with pytest.raises(TableError, match=r"series 'a', column 'ds': row 4 \(2024-03-01 04:07:00\) is not on the grid"):
        read_series(table, Settings(freq="h"))
    with pytest.raises(TableError, match=r"row 0 \(2024-03-02 00:00:00\) is not on the grid"):
        read_series(hourly().assign(ds=lambda df: df["ds"] + pd.Timedelta(days=1)), Settings(freq="MS"))
    with pytest.raises(TableError, match="freq='h' means timestamps, but column 'ds' holds int64"):
        read_series(walks(5), Settings(freq="h"))
    with pytest.raises(TableError, match="column 'ds', row 0: 'soon' is not a time as ISO 8601"):
        read_series(hourly().assign(ds="soon"), Settings(freq="h"))
    with pytest.raises(
        TableError, match=r"column 'y' is -1 at .* \(row 0\); scaling=\"log1p\" is for values of at least"
    ):
        read_series(hourly().assign(y=-1), Settings(freq="h", scaling="log1p"))
    with pytest.raises(TypeError, match="expected a table of pandas, polars or pyarrow, got list"):
        read_series([1, 2], Settings(freq="h"))


def test_text_times_and_whole_numbers_that_may_be_missing_are_read():
    table = hourly().assign(ds=lambda df: df["ds"].astype(str), y=lambda df: df["y"].astype("Int64"))
    (found,) = read_series(table, Settings(freq="h"))
    (plain,) = read_series(hourly(), Settings(freq="h"))
    assert found.times.equals(plain.times)
    np.testing.assert_array_equal(found.values, plain.values)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"targets": []}, ValueError, "at least one column"),
        ({"targets": ["y"], "past_inputs": ["y"]}, ValueError, r"\['y'\] have several"),
        ({"freq": "sometimes"}, ValueError, "pandas frequency or a whole number, got 'sometimes'"),
        ({"freq": "-1h"}, ValueError, "forward in time"),
        ({"freq": 0}, ValueError, "freq must be at least 1"),
        ({"freq": 1, "calendar": ["hour"]}, ValueError, "calendar features need timestamps"),
        ({"calendar": ["minute"]}, ValueError, "calendar must be one of"),
        ({"scaling": "minmax"}, ValueError, "scaling must be one of"),
        ({"scaling": {"z": "none"}}, ValueError, r"neither targets nor past inputs: \['z'\]"),
        ({"config": {"n_inputs": 3}}, ValueError, "must not hold n_inputs"),
        ({"config": {"depth": 3}}, ValueError, r"unknown settings \['depth'\]"),
        ({"training": {"epochs": 3}}, ValueError, r"unknown training settings \['epochs'\]"),
        (
            {"config": {"observation": "negative_binomial"}, "scaling": "standard"},
            ValueError,
            "use scaling='none' or 'local'",
        ),
        ({"horizon": 0}, ValueError, "horizon must be at least 1"),
        ({"input_size": 1}, ValueError, "input_size must be at least 2"),
        ({"targets": [3]}, TypeError, "targets must hold column names"),
    ],
)
def test_settings_that_make_no_sense(settings, error, message, without_shape_checks):
    with pytest.raises(error, match=message):
        Forecaster(**settings)


def test_calendar_features_lie_on_circles():
    times = pd.DatetimeIndex(["2024-01-01 00:00", "2024-01-01 06:00", "2024-07-01 12:30"])
    hour, weekday = (calendar_features(times, (name,)) / np.sqrt(2) for name in ("hour", "weekday"))
    np.testing.assert_allclose(hour[:2], [[0, 1], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(weekday, [[0, 1]] * 3, atol=1e-12)  # three Mondays
    for name, at in (("month", 6 / 12), ("day_of_year", 182 / 365.25)):
        found = calendar_features(times, (name,))[2] / np.sqrt(2)
        np.testing.assert_allclose(found, [np.sin(2 * np.pi * at), np.cos(2 * np.pi * at)], atol=1e-12)


def test_a_row_holds_the_values_of_its_time_and_what_is_known_of_the_next():
    settings = Settings(freq="h", future_inputs=("x",), past_inputs=("z",), calendar=("hour",), scaling="none")
    table = hourly(x=np.arange(10.0, 16.0), z=np.arange(20.0, 26.0))
    (found,) = read_series(table, settings)
    panel = Panel.fit(settings, [found])
    panel.units[:] = 1
    (viewed,), _, _ = panel.begin([found])
    plain = viewed.scaler.in_units(1 / viewed.scaler.spread)
    rows = panel.rows(viewed._replace(scaler=plain)).numpy()
    np.testing.assert_allclose(rows[:, 0], table["y"])
    np.testing.assert_allclose(rows[:, 1], table["z"])
    known = (table["x"] - table["x"].mean()) / table["x"].std(ddof=0)
    np.testing.assert_allclose(rows[:-1, 2], known[1:], rtol=1e-6)
    hours = calendar_features(found.times, ("hour",))
    np.testing.assert_allclose(rows[:-1, 3:], hours[1:], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(rows[-1, 2:], 0)


def test_series_too_short_or_never_complete_are_named():
    table = pd.concat((walks(60), series("short", [1.0, np.nan, 2.0])))
    with pytest.raises(TableError, match="series 'short' is too short to use: it has 2 observed rows"):
        make(scaling="standard").fit(table, progress=False)
    never = walks(60).assign(z=np.nan)
    with pytest.raises(TableError, match=r"series 'a' has no row in which all of \['y', 'z'\] are observed"):
        make(past_inputs=["z"]).fit(never, progress=False)


def test_misuse_of_a_forecaster_is_named():
    forecaster = make()
    with pytest.raises(ValueError, match="has not been fitted yet"):
        forecaster.predict()
    table = walks(60, 60)
    with pytest.raises(ValueError, match="val_size must be 0 or at least the horizon, 4, got 3"):
        forecaster.fit(table, val_size=3)
    with pytest.raises(TableError, match="series 'a' has 60 rows: too few for val_size=50"):
        forecaster.fit(table, val_size=50)
    forecaster.fit(table, progress=False)
    with pytest.raises(ValueError, match="level is a percentage"):
        forecaster.predict(level=[0.95, 100])
    with pytest.raises(ValueError, match="probability strictly between 0 and 1, got 1"):
        forecaster.predict(quantiles=[1])
    with pytest.raises(TableError, match=r"series 'a', column 'ds': row 0 \(59\) is not after the last row known, 59"):
        forecaster.update(series("a", [0.0], start=59))
    with pytest.raises(TableError, match="has no future inputs"):
        forecaster.predict(future=table)
    with pytest.raises(TableError, match="series 'a' has 60 rows: too few for 20 windows"):
        forecaster.backtest(table, n_windows=20)


def test_a_horizon_without_its_future_inputs_is_named():
    table = walks(60, 60).assign(x=1.0)
    forecaster = make(future_inputs=["x"]).fit(table, progress=False)
    with pytest.raises(TableError, match=r"needs the future inputs \['x'\] at the times ahead"):
        forecaster.predict()
    future = pd.concat((series("a", [0] * 4, start=60), series("b", [0] * 3, start=60))).assign(x=0.0)
    with pytest.raises(TableError, match="future has no row of series 'b' at 63"):
        forecaster.predict(future=future)
    with pytest.raises(TableError, match="future has no rows of series 'b'"):
        forecaster.predict(future=future[future["unique_id"] == "a"])
    assert len(forecaster.predict(future=future, h=3)) == 6
