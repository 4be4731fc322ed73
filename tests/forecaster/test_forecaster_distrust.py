"""Values that are not believed: an outlier leaves the state alone, and a series that really moved is found again."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import SHORT, make, series, walks

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.distrust import Distrust, is_outside
from smc_transformer.forecaster.table import read_series

NAN = float("nan")
HORIZON = 4


@pytest.fixture(scope="module", params=["local", "standard"])
def fitted(request):
    return make(horizon=HORIZON, scaling=request.param).fit(walks(60, 60), progress=False)


@pytest.fixture(scope="module")
def two_targets():
    table = walks(60, 60).assign(z=lambda df: df["y"].to_numpy()[::-1], w=lambda df: -df["y"])
    return make(targets=["y", "z"], past_inputs=["w"]).fit(table, progress=False)


def forecasts(forecaster, table, **options):
    """The answer of an update, and the forecasts after it."""
    forecaster = copy.deepcopy(forecaster)
    return forecaster.update(table, **options), forecaster.predict()


def test_an_outlier_is_as_good_as_missing(fitted):
    rows = [0.3, 1000.0, 0.2]
    surprise, after = forecasts(fitted, series("a", rows, start=60), distrust=99.9)
    _, missing = forecasts(fitted, series("a", [0.3, NAN, 0.2], start=60))
    pd.testing.assert_frame_equal(after, missing)
    assert surprise["value"].tolist() == rows  # the answer still tells of it
    assert surprise["distrusted"].tolist() == [False, True, False]
    believed, dragged = forecasts(fitted, series("a", rows, start=60))
    assert "distrusted" not in believed
    assert not dragged.equals(missing)
    # Believed, the outlier makes the return to normal a second alarm.
    assert believed["outside-95"].tolist() == [False, True, True]


def test_what_is_distrusted_is_what_score_would_flag(fitted):
    table = series("a", 2 * np.random.default_rng(0).normal(size=200), start=60)
    surprise, _ = forecasts(fitted, table, level=[60], distrust=60)
    runs = surprise["outside-60"].groupby((~surprise["outside-60"]).cumsum()).cumsum()
    assert (runs > HORIZON).any()  # the patience came to its end, too
    assert (surprise["distrusted"] == surprise["outside-60"] & (runs <= HORIZON)).all()


def test_nothing_outside_changes_nothing(fitted):
    table = pd.concat((series("a", [0.3, 0.1], start=60), series("b", [10.0], start=60)))
    one, after_one = forecasts(fitted, table, distrust=99.999)
    other, after_other = forecasts(fitted, table)
    assert not one["distrusted"].any()
    pd.testing.assert_frame_equal(one.drop(columns="distrusted"), other)
    pd.testing.assert_frame_equal(after_one, after_other)


def test_only_the_targets_that_lie_outside_are_dropped(two_targets):
    row = pd.DataFrame({"unique_id": ["a"], "ds": [60], "y": [0.1], "z": [1e4], "w": [1e4]})
    surprise, after = forecasts(two_targets, row, distrust=99.9)
    assert dict(zip(surprise["target"], surprise["distrusted"], strict=True)) == {"y": False, "z": True}
    pd.testing.assert_frame_equal(after, forecasts(two_targets, row.assign(z=NAN))[1])  # w is a past input: believed
    pd.testing.assert_frame_equal(
        forecasts(two_targets, row.assign(y=NAN), distrust=99.9)[1],
        forecasts(two_targets, row.assign(y=NAN, z=NAN))[1],
    )


def test_new_series_are_judged_too(fitted):
    y = walks(30, seed=7)["y"].to_numpy().copy()
    y[20] = 500.0
    table = series("new", y)
    surprise, _ = forecasts(fitted, table, level=95, distrust=95)
    assert surprise.set_index("ds").loc[20, "distrusted"]
    # The same as if those values had been missing, with the scaling of the whole series.
    other = copy.deepcopy(fitted)
    if fitted.settings.scaling == "standard":
        _, (scaler,), _ = fitted.fitted.panel.begin(read_series(table, fitted.settings))
        other.fitted.panel.scalers["new"] = scaler
    gappy = table.assign(y=table["y"].where(~table["ds"].isin(surprise.loc[surprise["distrusted"], "ds"])))
    kept = surprise[~surprise["distrusted"]].drop(columns="distrusted").reset_index(drop=True)
    pd.testing.assert_frame_equal(other.update(gappy, level=95), kept)


def shifted(n_rows, by):
    return series("a", by + np.random.default_rng(0).normal(size=n_rows), start=60)


def test_a_series_that_has_moved_is_found_again_within_the_horizon(fitted):
    surprise, after = forecasts(fitted, shifted(12, by=1000.0), level=99.9, distrust=99.9)
    # The model, left alone, would stay where the series was: not one of the 12 is inside what it expects.
    never = copy.deepcopy(fitted).fitted.update(
        read_series(shifted(12, by=1000.0), fitted.settings, after={"a": 59}), Distrust(99.9, 1, patience=1000)
    )
    assert never[0].judgement.runs[:, 0].tolist() == list(range(1, 13))
    # With patience for 4 values, the 5th is believed, and the 6th lies inside.
    assert surprise["distrusted"].tolist() == [True] * HORIZON + [False] * 8
    if fitted.settings.scaling == "standard":
        assert surprise["outside-99.9"].tolist() == [True] * (HORIZON + 1) + [False] * 7
    else:  # the smoothers of the view need some rows to get there
        assert not surprise["outside-99.9"].tail(3).any()
    found = after[after["unique_id"] == "a"]
    assert ((found["y-lo-95"] < 1000) & (found["y-hi-95"] > 1000)).all()


def test_the_patience_goes_on_from_update_to_update_and_through_a_file(fitted, tmp_path):
    table = shifted(12, by=1000.0)
    at_once, after = forecasts(fitted, table, distrust=99.9)
    one_by_one, parts = copy.deepcopy(fitted), []
    for row in range(len(table)):
        parts.append(one_by_one.update(table[row : row + 1], distrust=99.9))
        one_by_one.save(tmp_path / "model")
        one_by_one = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), at_once)
    pd.testing.assert_frame_equal(one_by_one.predict(), after)


def test_intervals_that_grow_find_a_moved_series_by_themselves():
    walk = series("a", np.random.default_rng(0).normal(size=200).cumsum())
    training = {**SHORT, "likelihood_steps": 60, "forecast_steps": 0, "learning_rate": 1e-2}
    forecaster = make(n_particles=64, horizon=12, training=training, scaling="standard")
    forecaster.fit(walk, val_size=0, progress=False)
    moved = series("a", [walk["y"].iloc[-1] + 6.0] * 30, start=200)
    surprise = forecaster.update(moved, level=99, distrust=99)
    # Six steps' deviations away is outside at first, and inside after some steps (3, when this was written) without an
    # observation, before the patience for 12 comes to its end.
    n_distrusted = int(surprise["distrusted"].sum())
    assert 1 <= n_distrusted < 12
    assert surprise["distrusted"].tolist() == [True] * n_distrusted + [False] * (30 - n_distrusted)
    assert not surprise["outside-99"][n_distrusted]


def test_runs():
    distrust = Distrust(percent=90, n_targets=2, patience=2)
    # Columns: outside and again, inside, and a past input, which is never doubted; then a missing value.
    pit = torch.tensor([[0.999, 0.5, 0.999], [0.001, NAN, NAN]])
    runs = distrust.runs(torch.tensor([[0, 3, 0], [2, 1, 0]]), pit)
    assert runs.tolist() == [[1, 0, 0], [3, 1, 0]]
    assert distrust.denies(runs).tolist() == [[True, False, False], [False, True, False]]
    assert is_outside(torch.tensor([0.05, 0.04, 0.96, NAN]), 90).tolist() == [False, True, True, False]


def test_levels_are_percentages(fitted):
    with pytest.raises(ValueError, match="level is a percentage, such as 80, from 1 to below 100, got 100"):
        fitted.update(series("a", [1.0], start=60), distrust=100)
