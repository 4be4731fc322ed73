"""The forecaster as one of sktime: the numbers are those of `Forecaster`, and tags say what it does."""

import pickle

import numpy as np
import pandas as pd
import pytest
from helpers.doc_blocks import monthly_sales, python_of, train_shortly
from helpers.forecaster_tables import SHORT, TINY, autoregression
from sktime.forecasting.base import ForecastingHorizon
from sktime.forecasting.model_evaluation import evaluate
from sktime.performance_metrics.forecasting.probabilistic import CRPS
from sktime.split import ExpandingWindowSplitter

from smc_transformer import Forecaster
from smc_transformer.adapters.sktime import SMCForecaster

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

SMALL = {"input_size": 10, "config": TINY, "training": SHORT, "n_particles": 16, "n_paths": 200}
INDEXES = {
    "datetime": pd.date_range("2020-01-01", periods=60, freq="D"),
    "month": pd.period_range("2020-01", periods=60, freq="M"),
    "range": pd.RangeIndex(60),
    "whole numbers": pd.Index(np.arange(5, 65)),
}


def make(**options):
    return SMCForecaster(**{**SMALL, "horizon": 4, "random_state": 3, **options})


def column(index=INDEXES["range"], seed=0, name="sales"):
    return pd.Series(autoregression(np.random.default_rng(seed), len(index)), index=index, name=name)


def panel(n_columns=1):
    """Two series of two levels, of which one ends earlier."""
    parts = {}
    for number, key in enumerate([("north", 1), ("south", 2)]):
        index = INDEXES["datetime"][: 50 - 4 * number]
        parts[key] = pd.DataFrame({f"c{place}": column(index, seed=number + place) for place in range(n_columns)})
    return pd.concat(parts, names=["region", "shop", "time"])


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_the_numbers_are_those_of_the_forecaster(index):
    y = column(index)
    expected = Forecaster(
        input_size=10, horizon=4, targets="y", freq=y.index.freqstr if isinstance(index, pd.DatetimeIndex) else None,
        config=TINY, training=SHORT, n_particles=16, seed=3,
    ).fit(pd.DataFrame({"ds": index, "y": y.to_numpy()}), progress=False)  # fmt: skip
    found = make().fit(y)
    fh = ForecastingHorizon([1, 2, 3, 4])
    table = expected.predict(n_paths=200, level=[])
    predicted = found.predict(fh)
    np.testing.assert_allclose(predicted, table["y"])
    assert predicted.index.tolist() == table["ds"].tolist()
    assert predicted.name == "sales"
    rows = expected.one_step(pd.DataFrame({"ds": index, "y": y.to_numpy()}), n_paths=200, level=[])
    before = found.predict(ForecastingHorizon(index, is_relative=False))
    assert np.isnan(before.iloc[0])
    np.testing.assert_allclose(before.iloc[1:], rows["y"])


def test_all_predictions_come_from_the_same_draws():
    forecaster = make().fit(panel(2))
    fh = [-1, 0, 1, 3]
    distribution = forecaster.predict_proba(fh)
    mean = forecaster.predict(fh)
    pd.testing.assert_frame_equal(distribution.mean(), mean, check_freq=False, check_names=False)
    quantiles = forecaster.predict_quantiles(fh, alpha=[0.1, 0.9])
    for alpha in (0.1, 0.9):
        np.testing.assert_allclose(distribution.ppf(alpha), quantiles.xs(alpha, axis=1, level=1))
    np.testing.assert_allclose(distribution.var(), forecaster.predict_var(fh))
    interval = forecaster.predict_interval(fh, coverage=0.8)
    np.testing.assert_allclose(interval.xs("lower", axis=1, level=2), quantiles.xs(0.1, axis=1, level=1))
    assert (quantiles.xs(0.1, axis=1, level=1) <= quantiles.xs(0.9, axis=1, level=1)).all(axis=None)


def test_series_that_end_at_different_times_are_predicted_at_the_same():
    y = panel()
    found = make().fit(y).predict([1, 2])
    assert found.index.names == y.index.names
    times = pd.date_range("2020-02-20", periods=2, freq="D")
    assert found.index.tolist() == [(*key, time) for key in [("north", 1), ("south", 2)] for time in times]
    # Step 1 after the cutoff is the fifth one of the series that ends four rows earlier.
    table = make().fit(y).forecaster_.predict(h=6, level=[], series=("south", 2), n_paths=200)
    assert table["ds"].tolist()[-2:] == list(times)


def test_an_update_is_a_filter_step_and_no_training():
    y = column(INDEXES["month"])
    forecaster = make().fit(y.iloc[:50])
    weights = {name: one.clone() for name, one in forecaster.forecaster_.model.state_dict().items()}
    expected = pickle.loads(pickle.dumps(forecaster.forecaster_))
    table = pd.DataFrame({"ds": y.index[50:53], "y0": y.iloc[50:53].to_numpy()})
    expected.update(table)
    forecaster.update(y.iloc[50:52], update_params=False)
    forecaster.update(y.iloc[48:53])  # rows that are known already are ignored
    assert forecaster.cutoff == y.index[52]
    after = forecaster.forecaster_.model.state_dict()
    assert all(weights[name].equal(one) for name, one in after.items())
    assert forecaster.forecaster_.fitted.following.series["series"].last_time == y.index[52].to_timestamp()
    assert forecaster.predict([1]).index[0] == y.index[53]
    assert expected.predict(level=[])["ds"].iloc[0] == y.index[53]
    # What was predicted of the new rows is known as well.
    assert forecaster.predict([-4, 0]).notna().all()


def test_pretraining_learns_from_a_panel_and_fit_follows_another_series():
    pretrained = make().pretrain(panel())
    weights = pretrained.pretrained_forecaster_.model.state_dict()
    y = column(INDEXES["datetime"], seed=9, name="c0")
    forecaster = pretrained.clone().fit(y)
    assert all(weights[name].equal(one) for name, one in forecaster.forecaster_.model.state_dict().items())
    expected = pretrained.pretrained_forecaster_.predict(
        pd.DataFrame({"unique_id": "series", "ds": y.index, "y0": y.to_numpy()}), level=[], n_paths=200
    )
    np.testing.assert_allclose(forecaster.predict([1, 2, 3, 4]), expected["y0"])
    again = pretrained.clone().fit(y.iloc[:40])
    assert again.cutoff == y.index[39]


def test_inputs_inform_predictions_where_they_are_known():
    y, x = (
        column(INDEXES["datetime"]),
        pd.DataFrame({"sales": np.sin(np.arange(60)), 7: 1.0}, index=INDEXES["datetime"]),
    )
    forecaster = make().fit(y.iloc[:50], X=x.iloc[:50])
    whole = forecaster.predict([1, 2, 3], X=x.iloc[50:])
    assert not np.allclose(whole, forecaster.predict([1, 2, 3], X=x.iloc[50:] + 3))
    some = forecaster.predict([1, 3], X=x.iloc[[50, 52]])
    assert np.isclose(some.iloc[0], whole.iloc[0])  # the second step comes after the first
    with pytest.raises(ValueError, match="needs the future inputs"):
        forecaster.predict([1])
    gappy = x.mask(np.broadcast_to(np.arange(60)[:, None] % 7 == 3, x.shape))
    assert make().fit(y.iloc[:50], X=gappy.iloc[:50]).predict([1, 2], X=gappy.iloc[50:]).notna().all()


def test_missing_values_are_inferred():
    y = column(INDEXES["month"]).mask(np.arange(60) % 5 == 2)
    forecaster = make().fit(y)
    assert forecaster.predict([1, 2]).notna().all()
    assert forecaster.predict(-np.arange(58)).notna().all()  # rows without a value are predicted too


def test_the_random_state_decides():
    y = column()
    one, other = (make(random_state=5).fit(y).predict([1, 2]) for _ in range(2))
    pd.testing.assert_series_equal(one, other)
    assert not np.allclose(one, make(random_state=6).fit(y).predict([1, 2]))
    free = make(random_state=None)
    np.random.seed(1)  # noqa: NPY002 (what sktime means by None)
    assert free.fit(y).predict([1, 2]).notna().all()


def test_pickled_and_saved_forecasters_go_on_alike(tmp_path):
    y = column(INDEXES["datetime"])
    forecaster = make().fit(y.iloc[:50])
    copy = pickle.loads(pickle.dumps(forecaster))
    forecaster.save(tmp_path / "saved")
    loaded = SMCForecaster.load_from_path(tmp_path / "saved.zip")
    for one in (forecaster, copy, loaded):
        one.update(y.iloc[50:])
    for one in (copy, loaded):
        pd.testing.assert_series_equal(forecaster.predict([1, 2]), one.predict([1, 2]))


def test_sktime_evaluates_it():
    splitter = ExpandingWindowSplitter(fh=[1, 2], initial_window=40, step_length=10)
    found = evaluate(
        make(), cv=splitter, y=column(INDEXES["datetime"]), strategy="update", scoring=CRPS(), error_score="raise"
    )
    assert (found["test_CRPS"] > 0).all()
    assert len(found) == 2


def test_the_page_on_other_libraries(monkeypatch):
    train_shortly(monkeypatch)
    names = monthly_sales()
    exec(python_of("other_libraries.md", "sktime"), names)
    assert names["intervals"].shape == (24, 2)
    assert names["forecaster"].cutoff[0] == names["new_month"]["ds"].max()
