"""Tables of polars and pyarrow: the same numbers as with pandas, with and without time zones."""

import copy

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.forecaster_tables import head, make, rows_between, walks

from smc_transformer.forecaster import TableError
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import read_series

ZONES = [None, "Europe/Berlin"]
CONVERSIONS = {
    "polars": pl.from_pandas,
    "polars, other types": lambda table: pl.from_pandas(table).with_columns(
        pl.col("unique_id").cast(pl.Categorical), pl.col("ds").dt.cast_time_unit("ms"), pl.col("x").cast(pl.Int32)
    ),
    "pyarrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
    "pyarrow, other types": lambda table: _with_dictionary(pa.Table.from_pandas(table).replace_schema_metadata(None)),
    "pandas on pyarrow": lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
}


def _with_dictionary(table):
    place = table.schema.get_field_index("unique_id")
    return table.set_column(place, "unique_id", table["unique_id"].dictionary_encode())


def hourly(zone):
    """Two series with a gap and a missing value, over a change of clocks; x is known ahead."""
    table = walks(40, 36)
    times = pd.date_range("2024-03-30 12:00", periods=40, freq="h", tz=zone)
    table = table.assign(ds=times[table["ds"]], x=(table["ds"] % 3).astype(int))
    table.loc[5, "y"] = np.nan
    return table


@pytest.fixture(scope="module", params=ZONES, ids=str)
def by_pandas(request):
    """The whole table, and a forecaster that has seen all but the last four rows of each series."""
    table = hourly(request.param)
    return table, make(freq="h", future_inputs=["x"], calendar=["hour"]).fit(head(table, 32), progress=False)


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_the_same_numbers_as_with_pandas(by_pandas, convert):
    table, expected = by_pandas
    given = make(freq="h", future_inputs=["x"], calendar=["hour"]).fit(convert(head(table, 32)), progress=False)
    expected, future = copy.deepcopy(expected), rows_between(table, 32, 36)

    def same(one, other):
        pd.testing.assert_frame_equal(one, other, check_dtype=False, check_exact=True)
        assert getattr(one["ds"].dt, "tz", None) == getattr(other["ds"].dt, "tz", None)

    same(given.predict(future=convert(future), n_paths=20), expected.predict(future=future, n_paths=20))
    same(
        given.predict(convert(head(table, 20)), future=convert(rows_between(table, 20, 24)), n_paths=20),
        expected.predict(head(table, 20), future=rows_between(table, 20, 24), n_paths=20),
    )
    same(given.score(convert(table)), expected.score(table))
    forecasts = [one.forecast(future=future, n_paths=20) for one in (given, expected)]
    same(forecasts[0].cdf(convert(future)), forecasts[1].cdf(future))
    densities = [
        forecast.log_prob(values)["log_density"]
        for forecast, values in zip(forecasts, (convert(head(future, 1)), head(future, 1)), strict=True)
    ]
    pd.testing.assert_series_equal(*densities)
    same(given.update(convert(future)), expected.update(future))
    ahead = rows_between(table, 36, 40)  # of series a only
    same(given.update(convert(ahead)), expected.update(ahead))


def test_backtests_with_a_new_fit_at_each_cutoff():
    table = hourly(None).drop(columns="x")
    options = {"n_windows": 2, "refit": True, "rolling": 26, "n_paths": 20, "progress": False}
    expected = make(freq="h").backtest(table, **options)
    for given in (
        pl.from_pandas(table).with_columns(pl.col("unique_id").cast(pl.Categorical)),
        pa.Table.from_pandas(table.assign(ds=table["ds"].map(lambda time: time.isoformat()))),
    ):
        found = make(freq="h").backtest(given, **options)
        pd.testing.assert_frame_equal(found.metrics, expected.metrics, check_exact=True)


def test_dates_text_and_numbers_of_other_kinds_are_read():
    days = pd.date_range("2024-02-27", periods=5, freq="D")
    table = pd.DataFrame({"unique_id": "a", "ds": days, "y": [0.5, 1.0, None, 3.0, 4.0]})
    (expected,) = read_series(table, Settings(freq="D"))
    polars, arrow = pl.from_pandas(table), pa.Table.from_pandas(table).replace_schema_metadata(None)
    for given in (
        polars.with_columns(pl.col("ds").cast(pl.Date)),
        polars.with_columns(pl.col("ds").dt.to_string("%Y-%m-%d")),
        polars.with_columns(pl.col("y").cast(pl.Decimal(10, 2))),
        polars.with_columns(pl.col("y").cast(pl.Float32)),
        polars.with_columns(pl.col("y").fill_null(float("nan"))),
        arrow.set_column(1, "ds", arrow["ds"].cast(pa.date32())),
        arrow.set_column(2, "y", arrow["y"].cast(pa.decimal128(10, 2))),
        arrow.to_batches()[0],
    ):
        (found,) = read_series(given, Settings(freq="D"))
        assert found.times.equals(expected.times)
        np.testing.assert_array_equal(found.values, expected.values)
    (found,) = read_series(polars.with_columns(pl.lit(7, dtype=pl.UInt8).alias("unique_id")), Settings(freq="D"))
    assert found.name == 7
    assert isinstance(found.name, int)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("ds", [0, None, 2], "column 'ds' is empty in row 1"),
        ("unique_id", ["a", "a", None], "column 'unique_id' is empty in row 2"),
        ("y", ["1", "2", "lots"], "column 'y' must hold numbers, got 'lots' in row 2"),
    ],
)
@pytest.mark.parametrize("make_table", [pl.DataFrame, pa.table], ids=["polars", "pyarrow"])
def test_errors_name_the_place(make_table, column, values, message):
    columns = {"unique_id": ["a"] * 3, "ds": [0, 1, 2], "y": [0.0, 1.0, 2.0], column: values}
    with pytest.raises(TableError, match=message):
        read_series(make_table(columns), Settings(freq=1))


def test_what_is_no_table_is_named(monkeypatch):
    table = pl.DataFrame({"unique_id": ["a"], "ds": [0], "y": [1.0]})
    for wrong in (table.lazy(), table["y"]):
        with pytest.raises(TypeError, match=f"pandas, polars or pyarrow, got {type(wrong).__name__}"):
            read_series(wrong, Settings(freq=1))
    monkeypatch.setattr(pl.DataFrame, "to_pandas", _needs_pyarrow)
    with pytest.raises(ImportError, match="a table of polars becomes one of pandas by pyarrow: pip install"):
        read_series(table, Settings(freq=1))


def _needs_pyarrow(table):
    raise ModuleNotFoundError("pyarrow is required")


def test_rows_in_another_zone_go_on_in_that_of_the_fit():
    table = hourly("Europe/Berlin").drop(columns="x")
    before, after = head(table, 32), rows_between(table, 32, 36)
    one = make(freq="h").fit(before, progress=False)
    other = copy.deepcopy(one)
    pd.testing.assert_frame_equal(
        one.update(after), other.update(after.assign(ds=after["ds"].dt.tz_convert("Asia/Tokyo")))
    )
    assert str(other.predict(n_paths=5)["ds"].dt.tz) == "Europe/Berlin"
    naive = rows_between(table, 36, 40).assign(ds=lambda df: df["ds"].dt.tz_localize(None))
    with pytest.raises(TableError, match=r"column 'ds': times have no time zone, but .* in Europe/Berlin"):
        one.update(naive)
    with pytest.raises(TableError, match=r"column 'ds': times have no time zone, but .* in Europe/Berlin"):
        one.backtest(table.assign(ds=lambda df: df["ds"].dt.tz_localize(None)), progress=False)
    forecast = one.forecast(n_paths=20)
    with pytest.raises(TableError, match="column 'ds': times have no time zone"):
        forecast.cdf(naive)
    text = rows_between(table, 36, 40).assign(ds=lambda df: df["ds"].map(lambda time: time.isoformat()))
    pd.testing.assert_frame_equal(forecast.cdf(text), forecast.cdf(rows_between(table, 36, 40)))


def test_future_inputs_in_another_zone_are_found_and_those_without_one_are_named():
    table = hourly("Europe/Berlin")
    forecaster = make(freq="h", future_inputs=["x"]).fit(head(table, 32), progress=False)
    future = rows_between(table, 32, 36).drop(columns="y")
    pd.testing.assert_frame_equal(
        forecaster.predict(future=future, n_paths=5),
        forecaster.predict(future=future.assign(ds=future["ds"].dt.tz_convert("Asia/Tokyo")), n_paths=5),
    )
    with pytest.raises(TableError, match=r"column 'ds': times have no time zone, but .* in Europe/Berlin"):
        forecaster.predict(future=future.assign(ds=future["ds"].dt.tz_localize(None)))


def test_calendars_are_those_of_the_zone_of_the_fit():
    table = hourly("Europe/Berlin").drop(columns="x")
    there = table.assign(ds=table["ds"].dt.tz_convert("UTC"))
    forecaster = make(freq="h", calendar=["hour"]).fit(head(table, 30), progress=False)
    pd.testing.assert_frame_equal(forecaster.score(there), forecaster.score(table))
    pd.testing.assert_frame_equal(forecaster.predict(there, n_paths=5), forecaster.predict(table, n_paths=5))
    for refit in (False, True):
        one, other = (forecaster.backtest(given, refit=refit, n_paths=5, progress=False) for given in (there, table))
        pd.testing.assert_frame_equal(one.forecasts, other.forecasts)
    forecaster.update(there[there["unique_id"] == "a"].assign(unique_id="new"))
    assert str(forecaster.predict(n_paths=5)["ds"].dt.tz) == "Europe/Berlin"
    with pytest.raises(TableError, match="times have no time zone"):
        forecaster.score(table.assign(ds=table["ds"].dt.tz_localize(None)))
