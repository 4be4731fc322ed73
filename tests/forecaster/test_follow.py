"""Following other series with a trained model."""

import pandas as pd
import pytest
from helpers.forecaster_tables import head, make, rows_between, series, walks
from helpers.models import assert_same

from smc_transformer.forecaster import Forecaster

OTHERS = walks(30, 25, seed=5).replace({"unique_id": {"a": "x", "b": "y"}})


@pytest.fixture(params=["local", "standard"])
def fitted(request):
    return make(scaling=request.param).fit(walks(60, 40), progress=False)


def test_it_forecasts_as_with_these_histories_and_goes_on_from_there(fitted):
    before = fitted.predict()
    following = fitted.follow(head(OTHERS, 20))
    assert following.series == ["x", "y"]
    pd.testing.assert_frame_equal(following.predict(), fitted.predict(head(OTHERS, 20)))
    following.update(rows_between(OTHERS, 20, 25))
    assert following.predict(level=[])["ds"].min() == 25
    # What it has come from stays as it is, and shares the weights.
    pd.testing.assert_frame_equal(fitted.predict(), before)
    assert following.model is fitted.model


def test_it_is_saved_as_a_forecaster_of_the_same_fit(fitted, tmp_path):
    following = fitted.follow(OTHERS)
    following.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(), following.predict())
    assert_same(loaded.model.state_dict(), fitted.model.state_dict())
    # Series of the fit are still known as such: how they are scaled, and until when they were seen.
    assert loaded.fitted.trained_until == fitted.fitted.trained_until
    history = head(walks(60, 40), 30)
    pd.testing.assert_frame_equal(loaded.predict(history, seed=3), fitted.predict(history, seed=3))


def test_a_forecaster_that_follows_can_follow_others_again(fitted):
    again = fitted.follow(OTHERS).follow(series("z", [1.0, 2.0, 1.5, 1.7]))
    assert again.series == ["z"]
    assert len(again.predict(level=[])) == 4
