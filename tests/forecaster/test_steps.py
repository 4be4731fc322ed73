"""Forecasts of some steps only: their rows, and future inputs at these steps alone."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import make, rows_between, walks

from smc_transformer.forecaster import TableError


def with_input(table, shift=0.0):
    return table.assign(x=np.sin(table["ds"]) + 3 + shift)


@pytest.fixture(scope="module")
def fitted():
    return make(future_inputs=["x"]).fit(with_input(walks(40, 40)), progress=False)


def ahead(n=6):
    times = pd.DataFrame({"unique_id": np.repeat(["a", "b"], n), "ds": np.tile(40 + np.arange(n), 2)})
    return with_input(times)


def test_listed_steps_are_rows_of_the_whole_forecast(fitted):
    whole = fitted.predict(h=5, future=ahead())
    some = fitted.predict(h=[5, 2], future=ahead())
    assert some["ds"].tolist() == [41, 44, 41, 44]
    pd.testing.assert_frame_equal(some, whole[whole["ds"].isin([41, 44])].reset_index(drop=True))


def test_inputs_are_needed_at_these_steps_alone(fitted):
    given = ahead().query("ds in [41, 44]")
    found = fitted.predict(h=[2, 5], future=given)
    mean = fitted.fitted.panel.known_scaler.shift[0]
    assert abs(mean - 3) < 0.1  # of a sine around 3
    filled = ahead().assign(x=lambda df: df["x"].where(df["ds"].isin([41, 44]), mean))
    pd.testing.assert_frame_equal(found, fitted.predict(h=[2, 5], future=filled))
    # They count where they are given.
    assert not np.allclose(found["y"], fitted.predict(h=[2, 5], future=given.assign(x=9.0))["y"])
    with pytest.raises(TableError, match=r"series 'a' has no value of the known input 'x' at 43"):
        fitted.predict(h=[2, 4, 5], future=given)
    with pytest.raises(TableError, match=r"no row of series 'a' at 40"):
        fitted.predict(h=[1, 5], future=given)
    with pytest.raises(TableError, match=r"no row of series 'a' at 40"):
        fitted.predict(h=5, future=given)
    with pytest.raises(TableError, match=r"no row of series 'a' at 45"):
        fitted.predict(h=[2, 6], future=given)


@pytest.mark.parametrize("h", [[], [0], [1.5], [2, -1]])
def test_steps_are_counted_from_one(fitted, h, without_shape_checks):
    with pytest.raises((ValueError, TypeError), match="h must"):
        fitted.predict(h=h, future=ahead())


def test_histories_still_need_their_inputs(fitted):
    table = with_input(walks(30))
    table.loc[5, "x"] = np.nan
    with pytest.raises(TableError, match="must be known at every time"):
        fitted.predict(table, h=[1], future=rows_between(with_input(walks(31)), 30, 31))
