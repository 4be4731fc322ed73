"""Windows of training and validation: where they begin, what is held out, and how they are thinned."""

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import make, series, walks

from smc_transformer.forecaster import TableError
from smc_transformer.forecaster.windows import training_windows, validation_windows

NAN = float("nan")


def counted(n_rows, first=0.0):
    """Rows (value, known input) with the values first, first + 1, ..."""
    return torch.stack((first + torch.arange(float(n_rows)), torch.ones(n_rows)), dim=1)


def test_every_row_with_enough_rows_after_it_begins_a_window():
    found = training_windows([counted(6), counted(5, 100.0)], 1, 4, at_most=100)
    assert found[:, 0, 0].tolist() == [0, 1, 2, 100, 101]
    assert found[1, :, 0].tolist() == [1, 2, 3, 4]


def test_windows_begin_where_everything_is_observed():
    rows = counted(40)
    rows[3:20:2, 0] = NAN
    found = training_windows([rows], 1, 4, at_most=100)
    assert not found[:, 0].isnan().any()
    assert sorted(set(range(37)) - {int(value) for value in found[:, 0, 0]}) == list(range(3, 20, 2))


def test_few_windows_with_gaps_are_left_out():
    rows = counted(200)
    rows[50, 0] = NAN
    found = training_windows([rows], 1, 4, at_most=1000)
    assert not found.isnan().any()
    assert len(found) == 197 - 4


def test_a_series_with_nothing_but_gaps_or_shorter_than_a_window_is_not_left_out():
    gaps = counted(30, 1000.0)
    gaps[2::3, 0] = NAN
    found = training_windows([counted(400), gaps, counted(3, 2000.0)], 1, 4, at_most=1000)
    first = found[:, 0, 0]
    assert int((first < 1000).sum()) == 397
    assert int(((first >= 1000) & (first < 2000)).sum()) > 10
    assert int((first >= 2000).sum()) == 1


def test_short_series_are_filled_up_by_missing_steps():
    short = counted(3)
    short[0, 0] = NAN
    found = training_windows([short, counted(5, 100.0)], 1, 5, at_most=100)
    np.testing.assert_array_equal(found[0, :, 0], [1, 2, NAN, NAN, NAN])
    np.testing.assert_array_equal(found[0, :, 1], [1, 1, 0, 0, 0])  # known inputs are never missing


def test_thinning_is_even_and_logged(caplog):
    with caplog.at_level("INFO"):
        found = training_windows([counted(104)], 1, 4, at_most=11)
    assert found[:, 0, 0].tolist() == list(range(0, 101, 10))
    assert "11 of 101 training windows" in caplog.text


def test_nothing_to_learn_from_is_an_error():
    with pytest.raises(TableError, match="there is nothing to learn from"):
        training_windows([counted(1)], 1, 4, at_most=10)


def test_horizons_of_validation_windows_lie_in_the_rows_held_out():
    panel = [counted(20), counted(20, 100.0), counted(20, 200.0)]
    panel[1][16, 0] = NAN
    found = validation_windows(panel, [4, 2, 0], 1, length=6, horizon=2)
    assert found[:, 0, 0].tolist() == [12, 13, 14, 114]
    assert validation_windows(panel, [0, 0, 0], 1, length=6, horizon=2) is None


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((60,), 12),  # one series: a fifth of its rows, for more windows
        ((300,), 33),  # as many as wanted: 30 windows
        ((60,) * 20, 5),  # many series: hardly more than the horizon
        ((17,), 0),  # too short to hold anything out
    ],
)
def test_rows_held_out_by_default(lengths, expected):
    table = walks(*lengths)

    def forecasts(**size):
        return make(scaling="standard").fit(table, progress=False, **size).predict()

    default = forecasts()
    pd.testing.assert_frame_equal(default, forecasts(val_size=expected))
    if expected == 0:
        with pytest.raises(TableError, match="too few for val_size=4"):
            forecasts(val_size=4)
    else:
        assert not default.equals(forecasts(val_size=expected + 1))


def test_a_panel_of_unequal_lengths_is_fitted_and_forecast():
    table = walks(80, 30, 5, 3)
    forecaster = make().fit(table, progress=False)
    assert forecaster.series == ["a", "b", "c", "d"]
    found = forecaster.predict(level=80)
    assert found.groupby("unique_id")["ds"].min().to_dict() == {"a": 80, "b": 30, "c": 5, "d": 3}
    assert np.isfinite(found.drop(columns=["unique_id", "ds"]).to_numpy()).all()
    # A series of one row is enough for a forecast where the scaling is known, and three where it is not.
    assert len(forecaster.predict(series("a", [1.0]))) == 4
    assert len(forecaster.predict(series("new", [1.0, 2.0, 1.5]))) == 4


def test_leading_gaps_are_skipped_and_trailing_ones_followed():
    y = walks(60)["y"].to_numpy(copy=True)
    y[:5] = NAN
    y[-2:] = NAN
    forecaster = make().fit(series("a", y), progress=False)
    assert forecaster.fitted.following.fleet.take(["a"]).position.item() == 54
    assert forecaster.predict()["ds"].tolist() == [60, 61, 62, 63]
