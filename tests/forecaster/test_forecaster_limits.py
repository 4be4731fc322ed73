"""Finite values that the model cannot hold: named, before anything has changed, instead of a NaN some steps later."""

import re

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import make, series, walks

from smc_transformer.forecaster import TableError
from smc_transformer.forecaster.limits import LARGEST, scale
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.table import Series


@pytest.fixture(scope="module")
def fitted():
    return make(future_inputs=["x"]).fit(walks(60, 60).assign(x=lambda df: df["ds"] % 7), progress=False)


def future(x=0.0, names=("a", "b")):
    return pd.concat([series(name, [0.0] * 4, start=60).assign(x=0.0) for name in names]).assign(x=x)


@pytest.mark.parametrize("size", [1e300, -1e300, 1e30])
def test_a_failed_update_leaves_every_state_as_it_was(fitted, size):
    before = fitted.predict(future=future())
    with_seed = fitted.predict(future=future(), seed=3)
    good = [series("c", [5.0, 6.0, 5.5, 6.5]), series("a", [1.0], start=60)]  # a new series, and a known one
    for column in ("y", "x"):
        bad = series("b", [0.0, 1.0], start=60).assign(x=0.0)
        bad.loc[1, column] = size
        message = rf"series 'b', column '{column}' is {re.escape(f'{size:g}')} at 61, beyond .* (between|as large as)"
        with pytest.raises(TableError, match=message):
            fitted.update(pd.concat([table.assign(x=0.0) for table in good] + [bad]))
        assert fitted.series == ["a", "b"]
        pd.testing.assert_frame_equal(fitted.predict(future=future(), seed=3), with_seed)
        pd.testing.assert_frame_equal(fitted.predict(future=future()), before)  # nor has the generator moved


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupted_update_leaves_every_state_as_it_was(fitted, monkeypatch, at):
    """One row of a series and three of another, the first ones together: three times particles are moved."""
    before = fitted.predict(future=future())
    attention, calls = fitted.model.attention, []
    draw_noise = attention.draw_noise

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == at:
            raise KeyboardInterrupt
        return draw_noise(*arguments)

    rows = pd.concat((series("a", [1.0], start=60), series("b", [1.0, 2.0, 1.5], start=60))).assign(x=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(attention, "draw_noise", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted.update(rows)
    assert len(calls) == at
    pd.testing.assert_frame_equal(fitted.predict(future=future()), before)


@pytest.mark.parametrize("column", ["y", "x"])
def test_whatever_reads_rows_refuses_them(fitted, column):
    table = walks(30, 30, seed=2).assign(x=0.0)
    table.loc[47, column] = 1e300
    for method in (fitted.score, fitted.predict, fitted.simulate):
        with pytest.raises(TableError, match=f"series 'b', column '{column}' is 1e\\+300 at 17, beyond"):
            method(table)
    table["unique_id"] = "new " + table["unique_id"]  # whose statistics come from these rows
    with pytest.raises(TableError, match=f"series 'new b', column '{column}' is 1e\\+300 at 17, beyond"):
        fitted.score(table)


def test_inputs_that_are_known_ahead_are_looked_at_too(fitted):
    ahead = future()
    ahead.iloc[6, ahead.columns.get_loc("x")] = -1e200
    with pytest.raises(TableError, match=r"series 'b', column 'x' is -1e\+200 at 62, beyond"):
        fitted.predict(future=ahead)


@pytest.mark.parametrize("scaling", ["standard", "robust", "none", "log1p"])
@pytest.mark.parametrize("column", ["y", "x"])
def test_a_fit_refuses_what_its_statistics_cannot_hold(scaling, column):
    table = walks(60, 60).assign(x=0.0, y=lambda df: df["y"].abs())
    table.loc[70:71, column] = 1.7e308  # even their mean overflows
    with pytest.raises(TableError, match=rf"series 'b', column '{column}' is 1.7e\+308 at 10, .* as large as 1e\+100"):
        make(scaling=scaling, future_inputs=["x"]).fit(table, progress=False)


@pytest.mark.parametrize("row", [70, 119])  # in training, and held out
def test_a_fit_refuses_what_its_scaling_cannot_hold(row):
    table = walks(60, 60)
    table.loc[row, "y"] = 1e60
    with pytest.raises(TableError, match=rf"series 'b', column 'y' is 1e\+60 at {row - 60}, beyond all that the model"):
        make(scaling="robust").fit(table, progress=False)


def test_the_bounds_in_the_message_are_the_bounds():
    scaler = Scaler(("standard",), np.array([5.0]), np.array([2.0]))

    def scaled(value):
        values = np.array([[np.nan], [value]])
        return scale(Series("a", pd.RangeIndex(2), values, np.empty((2, 0))), values, ("y",), scaler)

    np.testing.assert_allclose(scaled(-1.9e15)[1, 0], -0.95 * LARGEST)
    with pytest.raises(TableError, match=r"between -2e\+15 and 2e\+15"):
        scaled(2.1e15)


def test_what_the_model_can_hold_leaves_forecasts_finite():
    forecaster = make(scaling="standard").fit(walks(60), progress=False)
    scaler = forecaster.fitted.panel.scalers["a"]
    largest = float(scaler.inverse(np.array([0.99 * LARGEST]))[0])
    forecaster.update(series("a", [largest, -largest, 0.0], start=60))
    assert np.isfinite(forecaster.predict().drop(columns="unique_id")).all(axis=None)
