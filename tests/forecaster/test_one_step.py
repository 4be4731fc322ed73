"""One-step predictions over a history: those of forecasts made row by row, and what `score` judges by."""

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import head, make, series, walks
from helpers.models import mean_and_error

from smc_transformer.forecaster import TableError

NAN = float("nan")


@pytest.fixture(scope="module")
def fitted():
    return make().fit(walks(60, 40), progress=False)


def test_a_line_for_each_row_after_the_first_complete_one(fitted):
    table = walks(30, 20)
    table.loc[[0, 1, 7], "y"] = NAN  # the first two rows of series a, and one that is predicted though it is missing
    found = fitted.one_step(table.drop(index=9), level=[80], quantiles=[0.5], n_paths=20)
    assert found.columns.tolist() == ["unique_id", "ds", "y", "y-lo-80", "y-hi-80", "y-q-50"]
    assert found[found["unique_id"] == "a"]["ds"].tolist() == list(range(3, 30))
    assert found[found["unique_id"] == "b"]["ds"].tolist() == list(range(1, 20))
    assert np.isfinite(found[["y", "y-lo-80"]]).all(axis=None)
    assert (found["y-lo-80"] <= found["y-q-50"]).all()
    named = fitted.one_step(table, level=[80], n_paths=20, alias="SMC")
    assert named.columns.tolist() == ["unique_id", "ds", "SMC", "SMC-lo-80", "SMC-hi-80"]


@pytest.mark.parametrize("scaling", ["local", "log1p"])
def test_predictions_have_the_distribution_of_forecasts_from_the_row_before(scaling):
    """Copies of one series: averages over their particles and draws agree within the standard errors."""
    n_copies, n_known = 60, 20
    values = np.exp(0.3 * walks(30, seed=2)["y"].to_numpy())  # above 0, so that paths end there
    copies = pd.concat([series(f"copy {number}", values) for number in range(n_copies)])
    forecaster = make(scaling=scaling, n_particles=40).fit(head(copies, 28), progress=False)
    columns = ["y", "y-lo-80", "y-hi-80"]
    row_by_row = forecaster.one_step(head(copies, n_known + 1), level=[80], n_paths=400, seed=1)
    row_by_row = row_by_row[row_by_row["ds"] == n_known][columns]
    forecast = forecaster.predict(head(copies, n_known), h=1, level=[80], n_paths=400, seed=2)[columns]
    one, one_error = mean_and_error(torch.tensor(row_by_row.to_numpy()))
    other, other_error = mean_and_error(torch.tensor(forecast.to_numpy()))
    assert ((one - other).abs() < 4 * (one_error.square() + other_error.square()).sqrt()).all()
    assert (one_error < 0.1 * (one[2] - one[1])).all()  # the errors mean something


def test_scores_flag_what_lies_outside_these_intervals():
    table = walks(60, 50, seed=4)
    forecaster = make(n_particles=300).fit(table, progress=False)
    forecaster.fitted.panel.widths = None  # `score` judges by the distribution of the filter, as it is
    expected = forecaster.one_step(table, level=[80], n_paths=20_000).merge(table, on=["unique_id", "ds"])
    scores = forecaster.score(table, level=80)
    outside = (expected["y_y"] < expected["y-lo-80"]) | (expected["y_y"] > expected["y-hi-80"])
    # Particles differ between the two calls: only values next to an end may be flagged by one alone.
    assert (outside == scores["outside-80"]).mean() > 0.97
    assert scores["outside-80"].mean() < 0.9


def test_the_same_call_gives_the_same_numbers_and_leaves_no_trace(fitted):
    table, before = walks(30), fitted.predict()
    pd.testing.assert_frame_equal(fitted.one_step(table), fitted.one_step(table))
    assert not fitted.one_step(table, seed=1).equals(fitted.one_step(table, seed=2))
    pd.testing.assert_frame_equal(fitted.predict(), before)


def test_one_row_has_nothing_before_it(fitted):
    with pytest.raises(TableError, match="nothing to predict"):
        fitted.one_step(series("c", [1.0]))
    assert len(fitted.one_step(pd.concat((series("c", [1.0]), series("d", [1.0, 2.0]))))) == 1
