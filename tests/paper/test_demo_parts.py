"""The simulated panel of the demonstration, and the seasonal naive forecast beside it."""

import numpy as np
import pandas as pd
import pytest

from smct_paper.demo.seasonal_naive import seasonal_naive
from smct_paper.demo.simulated_panel import LONGEST, SHORTEST, simulated_panel


def test_the_panel_is_what_it_is_said_to_be():
    panel = simulated_panel(0)
    assert (panel["y"].dropna() > 0).all()
    spans, absent, missing = [], 0, 0
    for _, own in panel.groupby("unique_id"):
        grid = pd.date_range(own["ds"].iloc[0], own["ds"].iloc[-1], freq="MS")
        assert own["ds"].isin(grid).all()
        assert own["ds"].iloc[-1] == pd.Timestamp("2024-12-01")
        spans.append(len(grid))
        absent += len(grid) > len(own)
        missing += bool(own["y"].isna().any())
    assert len(spans) == 30
    assert SHORTEST <= min(spans) < 60
    assert 120 < max(spans) <= LONGEST
    assert absent == 6
    assert missing >= 6


def test_the_panel_depends_on_the_seed_alone():
    pd.testing.assert_frame_equal(simulated_panel(3), simulated_panel(3))
    assert not simulated_panel(3).equals(simulated_panel(4))


@pytest.mark.parametrize(("kind", "highest"), [("summer", 7), ("winter", 12)])
def test_each_kind_has_its_season(kind, highest):
    panel = simulated_panel(1)
    own = panel[panel["unique_id"].str.startswith(kind)]
    relative = own["y"] / own.groupby("unique_id")["y"].transform("mean")
    assert relative.groupby(own["ds"].dt.month).mean().idxmax() == highest


def test_where_every_season_brings_the_same_change_the_naive_forecast_is_certain():
    draws = seasonal_naive(np.arange(11.0), 4, 6, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(draws, np.tile([11, 12, 13, 14, 11, 12], (5, 1)))


def test_a_missing_value_is_replaced_by_that_of_the_season_before():
    history = np.array([1.0, 10, 2, 11, 4, np.nan])  # season 2; changes 1, 1, 2
    draws = seasonal_naive(history, 2, 2, 200, np.random.default_rng(0))
    assert set(draws[:, 0]) == {4 + 1, 4 + 2}
    assert set(draws[:, 1]) == {11 + 1, 11 + 2}
    assert (draws[:, 0] == 5).mean() == pytest.approx(2 / 3, abs=0.12)


@pytest.mark.parametrize(
    ("history", "said"), [([np.nan, 1, np.nan, 2], "never observed"), ([1.0, np.nan, np.nan, 2], "rows apart")]
)
def test_what_was_never_observed_is_an_error(history, said):
    with pytest.raises(ValueError, match=said):
        seasonal_naive(np.array(history), 2, 2, 10, np.random.default_rng(0))
