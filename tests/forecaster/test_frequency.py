"""The frequency of times, found from the times."""

import contextlib

import numpy as np
import pandas as pd
import pytest

from smc_transformer.forecaster.frequency import (
    IrregularTimesError,
    TimeOutOfReachError,
    check_frequency,
    infer_frequency,
    times_after,
)


@pytest.mark.parametrize("freq", ["h", "15min", "D", "B", "W-WED", "MS", "ME", "QS-OCT", "YS-JAN", "2h", "7D", "10s"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_regular_times(freq, zone):
    times = pd.date_range("2023-02-01", periods=60, freq=freq, tz=zone)
    found = infer_frequency([times])
    assert pd.date_range(times[0], periods=60, freq=found).equals(times)
    # The same without some rows, and beside a series of two rows.
    random = np.random.default_rng(0)
    some = times[np.sort(random.choice(60, 50, replace=False))]
    if freq in ("W-WED", "QS-OCT") or (zone and freq in ("D", "7D")):
        return  # days differ in length where clocks change; weeks and quarters with gaps have to be named
    found = infer_frequency([some, times[5:7]])
    assert some.isin(pd.date_range(some[0], some[-1], freq=found)).all()
    if freq in ("D", "7D"):
        assert found == freq  # not in hours, which would be told to the network of daily rows


@pytest.mark.parametrize(
    ("freq", "end"), [("M", ": do you mean 'ME'?"), ("T", ": do you mean 'min'?"), ("-1", ""), ("foo", "")]
)
def test_what_is_no_frequency_is_told_in_our_words(freq, end):
    if end and int(pd.__version__.partition(".")[0]) < 3:
        pytest.skip("older versions of pandas still know it")
    with pytest.raises(ValueError, match="freq must be") as error:
        check_frequency(freq)
    assert str(error.value) == f"freq must be a pandas frequency or a whole number, got {freq!r}{end}"


def test_whole_numbers():
    assert infer_frequency([pd.Index(range(0, 30, 3))]) == 3
    assert infer_frequency([pd.Index([0, 2, 4, 10, 12]), pd.Index([7])]) == 2


@pytest.mark.parametrize(
    "series",
    [
        [],
        [pd.Index([1])],
        [pd.Index([0, 2, 5, 7, 10])],
        [pd.DatetimeIndex(["2024-01-01", "2024-01-02", "2024-01-03 07:11", "2024-01-04"])],
        [pd.to_datetime("2024-01-01") + pd.to_timedelta([n * n for n in range(30)], "min")],
    ],
)
def test_irregular_times(series):
    with pytest.raises(IrregularTimesError):
        infer_frequency(series)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_no_grid_of_thousands_of_years_is_made_for_a_row_far_away(unit, monkeypatch):
    """Of the year 9999, or the last that nanoseconds have: a grid of days or weeks would take minutes to make."""
    far = {"ns": "2262-04-11"}.get(unit, "9999-12-31")
    days = [*map(str, pd.date_range("2024-01-01", periods=9).date), far]
    times = pd.DatetimeIndex(np.array(days, dtype=f"datetime64[{unit}]"))

    def made(*_, **__):
        raise AssertionError("a grid was made")

    monkeypatch.setattr(pd, "date_range", made)
    assert infer_frequency([times]) == "D"
    # Two rows have no other step than theirs, and of nanoseconds no step is as long.
    with pytest.raises(IrregularTimesError) if unit == "ns" else contextlib.nullcontext():
        infer_frequency([times[-2:]])


def test_in_a_zone_grids_end_with_the_year_9999():
    """Where pandas speaks of something that is not implemented."""
    last = pd.Timestamp("9999-12-30", tz="Europe/Berlin").as_unit("us")
    with pytest.raises(TimeOutOfReachError, match="goes beyond the times that can be written down"):
        times_after(last, 12, "D")
