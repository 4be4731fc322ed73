"""What is chosen from a table where nothing was set, and that all of it can be overridden."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import SHORT, TINY, series, walks

from smc_transformer.forecaster import Forecaster, TableError
from smc_transformer.forecaster.automatic import choose

NOTHING = dict.fromkeys(("input_size", "targets", "freq", "calendar", "scaling", "seasons", "config", "training")) | {
    "horizon": 6,
    "future_inputs": (),
    "past_inputs": (),
    "id_column": "unique_id",
    "time_column": "ds",
}


def table(freq, n=240, values=None, name="y"):
    rng = np.random.default_rng(0)
    y = 10 + rng.normal(size=n) if values is None else values
    return pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2020-01-01", periods=n, freq=freq), name: y})


@pytest.mark.parametrize(
    ("freq", "n", "seasons", "calendar"),
    [
        ("h", 800, (24, 168), ("hour", "weekday")),
        ("h", 200, (24,), ("hour", "weekday")),  # less than two weeks
        ("15min", 2000, (96, 672), ("hour", "weekday")),
        ("D", 300, (7,), ("weekday",)),
        ("D", 900, (7,), ("weekday", "day_of_year")),
        ("B", 300, (5,), ("weekday",)),
        ("W-SUN", 240, (52,), ("day_of_year",)),
        ("MS", 90, (12,), ("month",)),
        ("ME", 20, (), ("month",)),  # less than two years
        ("QS", 40, (4,), ("month",)),
        ("YS", 40, (), ()),
    ],
)
def test_frequency_seasons_and_calendar(freq, n, seasons, calendar):
    settings, words = choose(NOTHING, table(freq, n))
    assert settings.freq.split("-")[0] == freq.split("-")[0]
    assert settings.seasons == seasons
    assert settings.calendar == calendar
    assert settings.scaling == "local"
    assert {"freq", "targets", "scaling", "observation", "seasons", "input_size"} <= set(words)


def test_history_goes_with_season_and_horizon_and_the_series():
    assert choose(NOTHING, table("MS"))[0].input_size == 24
    assert choose({**NOTHING, "horizon": 30}, table("D"))[0].input_size == 30
    assert choose(NOTHING, table("h", 800))[0].input_size == 48
    assert choose(NOTHING, table("YS", 9))[0].input_size == 8


def test_seasons_of_whole_number_times_are_seen_in_the_values():
    weekly = np.tile([1.0, 2.0, 6.0, 8.0, 6.0, 2.0, 1.0], 20) + 0.1 * np.random.default_rng(0).normal(size=140)
    assert choose(NOTHING, series("a", weekly))[0].seasons == (7,)
    assert choose(NOTHING, walks(140))[0].seasons == ()


def test_counts_are_seen():
    rng = np.random.default_rng(0)
    few = rng.poisson(0.5, size=240).astype(float)
    settings, words = choose(NOTHING, table("MS", values=few))
    assert settings.config["observation"] == "negative_binomial"
    assert "whole numbers of at least 0" in words["observation"]
    for others in (few + 0.5, few - 1, rng.poisson(200, size=240).astype(float)):
        assert "observation" not in choose(NOTHING, table("MS", values=others))[0].config
    asked = {**NOTHING, "config": {"observation": "student_t"}}
    assert choose(asked, table("MS", values=few))[0].config == {"observation": "student_t"}


def test_the_target_is_y_or_the_only_column_with_numbers():
    assert choose(NOTHING, table("MS", name="sales"))[0].targets == ("sales",)
    both = table("MS", name="sales").assign(price=1.0, shop="x")
    with pytest.raises(TableError, match=r"which column is to be forecast\?.*\['sales', 'price'\]"):
        choose(NOTHING, both)
    assert choose({**NOTHING, "future_inputs": "price"}, both)[0].targets == ("sales",)
    assert choose(NOTHING, both.assign(y=1.0))[0].targets == ("y",)


def test_what_is_asked_for_is_kept():
    asked = {
        "input_size": 5,
        "targets": ["y"],
        "freq": "D",
        "calendar": (),
        "scaling": "robust",
        "seasons": (3,),
    }
    settings, words = choose({**NOTHING, **asked}, table("D"))
    assert (settings.input_size, settings.calendar, settings.scaling, settings.seasons) == (5, (), "robust", (3,))
    assert words == {}


def test_times_on_no_grid_are_named():
    odd = table("D").assign(ds=lambda df: df["ds"] + pd.to_timedelta(np.arange(240) ** 2 % 11, unit="h"))
    with pytest.raises(TableError, match=r"column 'ds': the times lie on no regular grid"):
        choose(NOTHING, odd)


def test_two_lines_are_enough_and_tell_what_they_chose():
    months = table("MS", 60, values=50 + 10 * np.sin(np.arange(60) * np.pi / 6))
    forecaster = Forecaster(horizon=6, config=TINY, training=SHORT).fit(months, progress=False)
    assert len(forecaster.predict(level=[80])) == 6
    assert forecaster.report.chosen["seasons"] == "12 rows"
    assert forecaster.report.chosen["view"].startswith("season 12")
    assert forecaster.settings.seasons == (12,)


@pytest.mark.parametrize("n_rows", [3, 5, 9])
def test_short_series_beside_long_ones(n_rows):
    both = pd.concat((walks(60, 50), series("short", np.arange(float(n_rows)))))
    found = Forecaster(horizon=4, config=TINY, training=SHORT).fit(both, progress=False).predict(level=[80])
    own = found[found["unique_id"] == "short"]
    assert len(own) == 4
    assert np.isfinite(own[["y", "y-lo-80", "y-hi-80"]]).all(axis=None)
