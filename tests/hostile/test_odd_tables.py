"""Tables that mean no series: refused in one line that says which column and row, never modelled as something else."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.forecaster_tables import make, series, walks

from smc_transformer.forecaster import Forecaster, TableError
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import MOST_STEPS, read_series

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run the package

WHOLE, DAYS, HOURS = Settings(freq=1), Settings(freq="D"), Settings(freq="h")


def refused(table, settings, *words):
    with pytest.raises(TableError) as error:
        read_series(table, settings)
    message = str(error.value)
    for word in words:
        assert word in message, message
    assert "\n" not in message
    assert len(message) < 1500


def with_values(values):
    return pd.DataFrame({"unique_id": "a", "ds": np.arange(len(values)), "y": values})


NOT_NUMBERS = {
    "dates": pd.date_range("2020", periods=3),
    "dates with a gap": pd.DatetimeIndex(["2020-01-01", pd.NaT, "2020-01-03"]),
    "dates in a zone": pd.date_range("2020", periods=3, tz="UTC"),
    "durations": pd.to_timedelta([1, 2, None], unit="D"),
    "periods": pd.period_range("2020", periods=3),
    "intervals": pd.interval_range(0, 3),
    "complex numbers": np.array([1.0, 2.0, 3.0 + 4.0j]),
    "complex numbers without an imaginary part": np.array([1.0 + 0j, 2.0, 3.0]),
}


@pytest.mark.parametrize("what", NOT_NUMBERS)
def test_columns_of_other_kinds_are_no_numbers(what):
    values = pd.Series(NOT_NUMBERS[what])
    refused(with_values(values), WHOLE, "column 'y' must hold numbers, it holds", str(values.dtype))


@pytest.mark.parametrize(
    "cell",
    [
        pd.Timestamp("2020-01-01"),
        datetime.date(2020, 1, 1),
        datetime.timedelta(days=1),
        pd.Period("2020"),
        np.datetime64("2020-01-01"),
        np.timedelta64(3, "D"),
        np.timedelta64("NaT"),
        1j,
        [1.0],
        {"a": 1},
        b"1",
        10**400,
        10**5000,
        "0x10",
        "x" * 100_000,
    ],
    ids=lambda cell: type(cell).__name__,
)
def test_cells_of_other_kinds_are_named_with_their_row(cell):
    values = np.empty(3, dtype=object)
    values[:] = [1.0, 2.0, None]
    values[1] = cell
    refused(with_values(values), WHOLE, "column 'y' must hold numbers, got", "in row 1")


@pytest.mark.filterwarnings("error")
def test_numbers_of_80_bits_that_are_none_of_64_are_named():
    refused(with_values(np.array([1, 2, "1e4000"], dtype=np.longdouble)), WHOLE, "column 'y' is infinite at 2 (row 2)")


def test_numbers_in_any_dress_are_numbers():
    for values in (
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series(["1", None, " 3 "], dtype=object),
        pd.Series([1, None, Decimal(3)], dtype=object),
        pd.Series(pd.Categorical([1, None, 3])),
        pd.Series(pd.arrays.SparseArray([1, np.nan, 3])),
        pd.Series([np.float32(1), pd.NA, np.int8(3)], dtype=object),
    ):
        (found,) = read_series(with_values(values), WHOLE)
        np.testing.assert_array_equal(found.values[:, 0], [1, np.nan, 3])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"unique_id": [["a"]] * 20}, r"column 'unique_id' must hold text or whole numbers, got \['a'\] in row 0"),
        ({"unique_id": [None] * 20}, "column 'unique_id' is empty in row 0"),
        ({"ds": [10**400] * 20}, r"column 'ds', row 0: 1000.* is not a time"),
        ({"ds": np.arange(20.0)}, "column 'ds' must hold timestamps or whole numbers, it holds float64"),
    ],
    ids=["lists", "none", "long", "floats"],
)
def test_odd_names_and_times_are_refused_before_anything_is_chosen_from_them(cells, message):
    table = with_values(np.arange(20.0))
    (column, values), *_ = cells.items()
    table[column] = pd.Series(values, dtype=object if isinstance(values, list) else None)
    with pytest.raises(TableError, match=message):
        Forecaster(horizon=2).choose(table if column == "unique_id" else table[["ds", "y"]])


@pytest.mark.parametrize("column", ["unique_id", "ds", "y"])
def test_two_columns_of_a_name_are_refused(column):
    table = pd.concat((with_values([1.0, 2.0]), with_values([1.0, 2.0])[[column]]), axis=1)
    refused(table, WHOLE, f"the table has 2 columns '{column}'")
    with pytest.raises(TableError, match="2 columns '" + column):
        Forecaster(horizon=2).choose(table)
    with pytest.raises(TableError, match="2 columns '" + column):
        Forecaster(horizon=2).choose(pa.Table.from_arrays(list(map(pa.array, table.to_numpy().T)), list(table.columns)))


def test_two_columns_of_a_name_among_which_the_target_would_be_chosen():
    table = with_values(range(20)).rename(columns={"y": "sales"})
    with pytest.raises(TableError, match="which column is to be forecast"):
        Forecaster(horizon=2).choose(pd.concat((table, table[["sales"]]), axis=1))


@pytest.fixture(scope="module")
def ahead():
    """A forecaster with an input that is known ahead."""
    return make(future_inputs=["x"]).fit(series("a", np.sin(np.arange(40.0)), x=np.arange(40) % 2), progress=False)


@pytest.mark.parametrize("column", ["unique_id", "ds", "y", "x"])
def test_two_columns_of_a_name_ahead_are_refused(ahead, column):
    table = pd.DataFrame({"unique_id": "a", "ds": [40, 41, 42, 43], "y": 1.0, "x": 0.0})
    future, given = (table[[*columns]] for columns in (("unique_id", "ds", "x"), ("unique_id", "ds", "y")))
    if column != "y":
        with pytest.raises(TableError, match=f"2 columns '{column}'"):
            ahead.predict(future=pd.concat((future, table[[column]]), axis=1), n_paths=2)
    if column != "x":
        with pytest.raises(TableError, match=f"2 columns '{column}'"):
            ahead.scenario(pd.concat((given, table[[column]]), axis=1), future=future, n_paths=2)


TIMES = {
    "a word": (["2024-01-01", "soon"], "row 1: 'soon' is not a time as ISO 8601"),
    "the clock": (["2024-01-01", "now"], "row 1: 'now' is not a time as ISO 8601"),
    "the clock in capitals": (["2024-01-01", " TODAY"], "row 1: ' TODAY' is not a time as ISO 8601"),
    "a missing one as text": (["2024-01-01", "NaT"], "row 1: 'NaT' is not a time as ISO 8601"),
    "another format": (["2024-01-01", "31.12.2024"], "row 1: '31.12.2024' is not a time as ISO 8601"),
    "a number among text": (["2024-01-01", 5], "row 1: 5 is not a time"),
    "a list": (["2024-01-01", [5]], "row 1: [5] is not a time"),
    "a long text": (["2024-01-01", "9" * 100_000], "row 1: '99"),
    "zones": (["2024-01-01T00:00+01:00", "2024-01-02T00:00"], "mixes time zones"),
}


@pytest.mark.parametrize("what", TIMES)
def test_times_that_cannot_be_read_are_named_with_their_row(what):
    cells, message = TIMES[what]
    times = np.empty(2, dtype=object)
    times[:] = cells
    refused(pd.DataFrame({"unique_id": "a", "ds": times, "y": [1.0, 2.0]}), DAYS, "column 'ds'", message)


def test_one_nanosecond_beside_the_grid_is_beside_the_grid():
    texts = ["2024-01-01T00:00", "2024-01-01T01:00:00.000000001", "2024-01-01T02:00"]
    times = pd.to_datetime(texts, format="ISO8601")
    refused(pd.DataFrame({"unique_id": "a", "ds": times, "y": 1.0}), HOURS, "row 1", "is not on the grid")


@pytest.mark.parametrize("last", ["2262-04-11", "9999-12-31", "2124-01-03"])
def test_a_jump_beyond_the_limit_names_its_row(last):
    times = pd.to_datetime(["2024-01-01", "2024-01-02", last])
    table = pd.DataFrame({"unique_id": "a", "ds": times, "y": [1.0, 2.0, 3.0]})
    refused(table, DAYS, "series 'a', column 'ds': row 2", last, f"at most {MOST_STEPS} can be missing")


def test_a_jump_up_to_the_limit_is_a_gap():
    table = with_values([1.0, 2.0, 3.0]).assign(ds=[0, 1, 1 + MOST_STEPS])
    (found,) = read_series(table, WHOLE)
    assert len(found) == 2 + MOST_STEPS
    refused(table.assign(ds=[0, 1, 2 + MOST_STEPS]), WHOLE, "row 2", "steps of freq=1 after 1")


def test_a_frequency_that_leaves_nearly_all_missing_is_doubted():
    times = pd.date_range("2024-01-01", periods=400, freq="h")
    refused(pd.DataFrame({"unique_id": "a", "ds": times, "y": 1.0}), Settings(freq="s"), "is the frequency right?")


@pytest.mark.parametrize("time", [2**62, 2**63 - 1, -(2**63)])
def test_whole_number_times_have_an_end(time):
    refused(with_values([1.0, 2.0]).assign(ds=[0, time]), WHOLE, "column 'ds' is out of reach in row 1")


def test_long_names_are_cut_in_errors():
    table = with_values([1.0, 2.0]).assign(unique_id="n" * 100_000, ds=[1, 0])
    refused(table, WHOLE, "series 'nnn", "is not sorted by time")
    refused(table.rename(columns={"y": "z" * 100_000}), WHOLE, "the table has no column 'y'")


@pytest.fixture(scope="module")
def fitted():
    return make().fit(walks(40), progress=False)


@pytest.mark.parametrize("verb", ["update", "score", "predict", "fit", "backtest"])
def test_all_verbs_refuse_a_jump(fitted, verb):
    table = pd.concat((series("a", np.ones(20), start=40), series("a", [1.0], start=10**9)), ignore_index=True)
    method = getattr(make() if verb in ("fit", "backtest") else fitted, verb)
    before = fitted.predict()
    with pytest.raises(TableError, match=r"row 20 \(1000000000\) is 999999941 steps"):
        method(table)
    pd.testing.assert_frame_equal(fitted.predict(), before)


def test_an_update_refuses_a_jump_from_the_last_row_known(fitted):
    with pytest.raises(TableError, match=r"row 0 \(99999\) is 99960 steps of freq=1 after 39"):
        fitted.update(series("a", [1.0], start=99_999))


@pytest.mark.parametrize("steps", [0, 10**6, 10**30])
def test_a_forecast_has_a_length_that_can_be_computed(fitted, steps):
    with pytest.raises(ValueError, match="h must be at "):
        fitted.predict(h=steps)


@pytest.mark.parametrize("level", ["x", None, ["80"], [None], 0.8, [80, 100], b"80", [float("nan")], True])
def test_levels_are_percentages(fitted, level):
    with pytest.raises(ValueError, match="level is a percentage, such as 80, from 1 to below 100, got "):
        fitted.predict(level=level)


def test_levels_of_numpy_are_numbers(fitted):
    expected = fitted.predict(level=[80, 95])
    pd.testing.assert_frame_equal(fitted.predict(level=np.array([80, 95])), expected)
    pd.testing.assert_frame_equal(fitted.predict(level=np.float32(80)), fitted.predict(level=80), check_names=False)


@pytest.mark.parametrize("quantiles", ["0.5", [True], ["x"], [0], 1, [float("nan")], "9" * 10_000])
def test_quantiles_are_probabilities(fitted, quantiles):
    with pytest.raises(ValueError, match="a quantile needs a probability strictly between 0 and 1, got ") as error:
        fitted.predict(quantiles=quantiles)
    assert len(str(error.value)) < 2000


@pytest.mark.filterwarnings("error")
def test_many_levels_make_one_table(fitted):
    assert len(fitted.predict(level=np.linspace(1, 99, 150), n_paths=5).columns) == 3 + 2 * 150


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("unique_id", "target"),
        ("unique_id", "value"),
        ("ds", "pit"),
        ("ds", "sample_id"),
        ("y", "cutoff"),
        ("y", "sample_id"),
        ("z", "y-lo-80"),
        ("z", "y-q-2.5"),
        ("z", "y-observed"),
        ("unique_id", "y-crps"),
    ],
)
def test_columns_that_answers_have_themselves_are_refused_before_the_training(before, after):
    """Of two columns of one name in an answer, pandas would keep the last."""
    names = {"unique_id": "unique_id", "ds": "ds", "y": "y", "z": "z"} | {before: after}
    table = with_values(np.arange(20.0)).assign(z=1.0).rename(columns=names)
    forecaster = Forecaster(
        horizon=2, id_column=names["unique_id"], time_column=names["ds"], targets=[names["y"], names["z"]]
    )
    with pytest.raises(ValueError, match=f"answers have a column '{after}' of their own"):
        forecaster.fit(table, progress=False)


@pytest.mark.parametrize("series", [3.5, 7, float("nan"), object(), [["a"]], "x" * 100_000])
def test_what_is_no_name_names_no_series(fitted, series):
    with pytest.raises(ValueError, match="there is no series") as error:
        fitted.predict(series=series)
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize("rows", [None, series("a", [1.0], start=40)])
def test_what_becomes_of_wrong_series_is_one_of_two(fitted, rows):
    for verb in (fitted.predict, fitted.simulate):
        with pytest.raises(ValueError, match=r"errors must be one of 'raise', 'collect', got 'ignore'"):
            verb(rows, errors="ignore")


@pytest.mark.filterwarnings("ignore:.*trained on")
def test_more_windows_of_a_backtest_than_rows_are_refused_before_they_are_counted(fitted):
    with pytest.raises(TableError, match=r"too few for 1000000000 windows"):
        fitted.backtest(series("a", np.ones(40)), n_windows=10**9)


def test_long_events_are_cut_in_errors(fitted):
    forecast = fitted.forecast(n_paths=2)
    for event in ("(" * 100_000, "y > " + "9" * 100_000 + " z", "?" * 100_000):
        with pytest.raises(ValueError, match=r"^event ") as error:
            forecast.probability(event)
        assert len(str(error.value)) < 2000


@pytest.mark.parametrize(
    "settings",
    [
        {"config": 7},
        {"config": [1]},
        {"training": "fast"},
        {"config": {"d_model": 10**400}},
        {"config": {3: 4}},
        {"config": {"encoder": ["gru"]}},
        {"config": {"window": 2**63}},
        {"targets": 5},
        {"targets": [None]},
        {"scaling": 5},
        {"scaling": {"y": []}},
        {"freq": "z" * 100_000},
        {"freq": 2**70},
        {"freq": 0},
        {"seed": 10**400},
        {"seed": -1},
        {"n_particles": 2**40},
        {"horizon": 10**9},
        {"horizon": np.timedelta64(3, "D")},
        {"seed": np.timedelta64(3)},
        {"input_size": 10**9},
        {"id_column": 3},
        {"seasons": object()},
        {"seasons": [10**8]},
        {"seasons": 3 + 4j},
        {"calendar": ["century"]},
    ],
    ids=lambda settings: ascii(settings).partition(" at 0x")[0][:40],
)
def test_settings_that_cannot_be_are_errors_of_ours(settings):
    with pytest.raises((TypeError, ValueError)) as error:
        Forecaster(**settings)
    assert len(str(error.value)) < 2000
    assert "smc_transformer" in str(error.traceback[-1].path)  # raised by us, not by what we call


@pytest.mark.parametrize("name", ["horizon", "n_particles", "id_column", "time_column"])
def test_none_is_named_where_it_is_no_setting(name):
    with pytest.raises(TypeError, match=f"{name} must be .*, got None"):
        Forecaster(**{name: None})


@pytest.mark.parametrize("scaling", ["local", "standard"])
def test_a_table_without_any_value_is_refused(scaling):
    table = with_values(pd.array([None] * 5, dtype="Float64"))
    with pytest.raises(TableError, match=r"nothing to learn from|too short to use"):
        make(scaling=scaling).fit(table, progress=False)


@pytest.mark.parametrize("scaling", ["local", "standard"])
def test_a_horizon_far_beyond_all_rows_is_refused_before_it_is_computed(scaling):
    table = pd.concat((series("a", np.ones(5)), series("b", np.ones(20))), ignore_index=True)
    with pytest.raises(TableError, match=r"horizon=1001 is far beyond the rows of the longest series, 20, .* h=1001"):
        Forecaster(horizon=1001, scaling=scaling, freq=1).fit(table, progress=False)
