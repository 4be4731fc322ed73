"""Periods as times: the numbers of their first moments, shown as periods wherever times are."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import make, walks

from smc_transformer.forecaster import Forecaster, TableError
from smc_transformer.forecaster.frequency import check_frequency, times_after
from smc_transformer.forecaster.periods import as_shown, steps_of_starts

KINDS = ["M", "2M", "Q-DEC", "Q-JAN", "Q-NOV", "Y-DEC", "Y-MAR", "W-SUN", "W-WED", "D", "h", "15min"]


def monthly(lengths=(40, 36)):
    table = walks(*lengths)
    return table.assign(ds=pd.period_range("2020-11", periods=60, freq="M")[table["ds"]])


def started(table):
    return table.assign(ds=table["ds"].dt.to_timestamp())


@pytest.fixture(scope="module")
def fitted():
    return make(freq=None).fit(monthly(), progress=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_grid_of_first_moments_is_that_of_pandas(kind):
    periods = pd.period_range("2024-02-05", periods=9, freq=kind)
    freq = check_frequency(str(periods.dtype))
    after = times_after(periods[0].to_timestamp(), 8, freq)
    assert as_shown(after, freq).equals(periods[1:])


def test_other_frequencies_are_left_alone():
    assert steps_of_starts("15min") == "15min"
    with pytest.raises(ValueError, match=r"freq must be a pandas frequency .* got 'period\[nonsense\]'"):
        check_frequency("period[nonsense]")


def test_the_same_numbers_as_with_their_first_moments(fitted):
    table = started(monthly())
    expected = make(freq="MS").fit(table, progress=False)
    assert fitted.settings.freq == "period[M]"
    assert (fitted.settings.calendar, fitted.settings.seasons) == (("month",), (12,))
    found = fitted.predict()
    assert found["ds"].dtype == "period[M]"
    pd.testing.assert_frame_equal(started(found), expected.predict(), check_dtype=False)
    pd.testing.assert_frame_equal(started(fitted.score(monthly())), expected.score(table), check_dtype=False)


def test_every_answer_has_periods(fitted, tmp_path):
    table = monthly()
    forecast = fitted.forecast(n_paths=10)
    for found in (
        fitted.one_step(table, n_paths=10),
        forecast.sample(),
        forecast.first_passage(0.0),
        fitted.forecast(monthly((36, 36)), n_paths=10).total_over_series(),
        fitted.backtest(table, n_paths=10, progress=False).forecasts,
    ):
        assert found["ds"].dtype == "period[M]"
    assert fitted.backtest(table, n_paths=10, progress=False).forecasts["cutoff"].dtype == "period[M]"
    came = fitted.predict().rename(columns={"y": "z"}).assign(y=1.0)[["unique_id", "ds", "y"]]
    pd.testing.assert_frame_equal(forecast.cdf(came), forecast.cdf(started(came)))
    fitted.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict())
    loaded.update(came.head(1))
    assert loaded.predict(series="a", level=[])["ds"].iloc[0] == came["ds"].iloc[0] + 1
    forecast.plot(history=table)


def test_gaps_between_periods_are_missing_values(fitted):
    table = monthly()
    table = table.drop(index=[7, 8])
    assert len(fitted.one_step(table, n_paths=10)) == 39 + 35


def test_any_moment_of_a_period_stands_for_it():
    table = monthly((30,)).assign(ds=lambda df: df["ds"].dt.to_timestamp() + pd.Timedelta(days=13))
    found = make(freq="period[M]").fit(table, progress=False).predict(level=[])
    assert found["ds"].tolist() == list(pd.period_range("2023-05", periods=4, freq="M"))
    twice = table.assign(ds=np.where(table.index == 3, table["ds"].shift(1), table["ds"]))
    with pytest.raises(TableError, match="two rows of the same time"):
        make(freq="period[M]").fit(twice, progress=False)
