"""Scenarios: given values hold, the rest has the conditional distribution, and mistakes in the table are named."""

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import SHORT, TINY, head, make, rows_between, series, walks

from smc_transformer.forecaster import TableError
from smc_transformer.inference import conditioned_paths

LINEAR = {
    "d_model": 4,
    "window": 1,
    "readout": "linear",
    "encoder": "linear",
    "input_changes": False,
    "observation": "gaussian",
    "predict_change": True,
    "initial_latent_variance": 0.2,
    "n_particles": 5,
}
"""A model whose paths are Gaussian."""


@pytest.fixture(scope="module")
def walker():
    """A forecaster whose model is a random walk: the read-out says that nothing but noise is added."""
    forecaster = make(config=LINEAR, horizon=8, scaling="standard").fit(walks(60, 60), progress=False)
    with torch.no_grad():
        forecaster.model.readout.projection.weight.zero_()
        forecaster.model.readout.projection.bias.zero_()
    return forecaster


def test_a_random_walk_with_a_known_end_is_a_bridge(walker):
    table, h = walks(60, 60), 8
    last = {name: own["y"].iloc[-1] for name, own in table.groupby("unique_id")}
    variance = walker.forecast(n_paths=10).variance_parts().groupby("unique_id")["y-within"].first()  # exact
    ends = {"a": last["a"] + 2 * np.sqrt(h * variance["a"]), "b": last["b"] - np.sqrt(h * variance["b"])}
    given = pd.DataFrame({"unique_id": ["a", "b"], "ds": [67, 67], "y": [ends["a"], ends["b"]]})
    found = walker.scenario(given, n_paths=5000, seed=1)
    steps = np.arange(1, h + 1)
    for number, name in enumerate(("a", "b")):
        paths, n_independent = found.paths[number, :, :, 0], found.effective_paths[name]
        assert (paths[:, -1] == ends[name]).all()
        assert n_independent > 2500
        mean = last[name] + (ends[name] - last[name]) * steps / h
        spread = variance[name] * steps * (h - steps) / h
        error = 4.5 / np.sqrt(n_independent)
        slack = 1e-5 * np.abs(mean).max()  # the model's numbers have 32 bits
        assert (np.abs(paths.mean(axis=0) - mean) <= error * np.sqrt(spread) + slack).all()
        # The variance of n draws of a Gaussian has the relative error sqrt(2 / n).
        assert (np.abs(paths.var(axis=0) - spread) <= np.sqrt(2) * error * spread + slack).all()
        early, late = paths[:, 2] - mean[2], paths[:, 5] - mean[5]
        covariance = variance[name] * 3 * (h - 6) / h
        allowed = error * np.sqrt(spread[2] * spread[5] + covariance**2)
        assert abs((early * late).mean() - covariance) <= allowed


def test_one_target_given_the_other_and_a_past_input():
    """The paths are Gaussian, so the scenario must be the regression of an ordinary forecast's paths."""
    random = np.random.default_rng(0)
    base = walks(80)
    table = base.assign(z=0.7 * base["y"] + random.normal(size=80), w=random.normal(size=80) - base["y"])
    training = {**SHORT, "likelihood_steps": 40, "learning_rate": 1e-2}
    forecaster = make(
        targets=["y", "z"], past_inputs=["w"], config=LINEAR, training=training, horizon=3, scaling="standard"
    )
    forecaster.fit(table, progress=False)
    free = forecaster.forecast(n_paths=100_000, seed=1)
    mean, deviation = free.paths[0].mean(axis=0), free.paths[0].std(axis=0)
    values = mean + deviation * np.array([[np.nan, 1.0], [np.nan, np.nan], [0.5, -1.0]])
    given = pd.DataFrame({"unique_id": "a", "ds": [80, 81, 82], "y": values[:, 0], "z": values[:, 1]})
    found = forecaster.scenario(given, n_paths=10_000, seed=2)
    vectors, fixed = free.paths[0].reshape(len(free.paths[0]), -1), ~np.isnan(values.reshape(-1))
    centre, covariance = vectors.mean(axis=0), np.cov(vectors.T)
    gain = np.linalg.solve(covariance[np.ix_(fixed, fixed)], covariance[fixed]).T
    expected = centre + gain @ (values.reshape(-1)[fixed] - centre[fixed])
    left = np.diag(covariance - gain @ covariance[fixed])
    drawn = found.paths[0].reshape(10_000, -1)
    assert (drawn[:, fixed] == values.reshape(-1)[fixed]).all()
    others = ~fixed
    # The regression is estimated by 100,000 paths: a tenth of the variance of the scenario's at most.
    error = 4.5 * np.sqrt(1.1 / found.effective_paths["a"])
    assert found.effective_paths["a"] > 2000
    assert (np.abs(drawn.mean(axis=0) - expected)[others] < error * np.sqrt(left[others])).all()
    assert (np.abs(drawn.var(axis=0)[others] / left[others] - 1) < error * np.sqrt(2)).all()
    assert np.abs(expected - centre)[others].max() > 3 * error * deviation.max()  # what was given made a difference
    # The past input, which is modelled but not a target, may be given too.
    hint = pd.DataFrame({"unique_id": "a", "ds": [80], "w": [table["w"].iloc[-1] + 3]})
    told = forecaster.scenario(hint, n_paths=2000)
    assert told.targets == ("y", "z")
    assert told.effective_paths["a"] < 2000


@pytest.fixture(scope="module")
def fitted():
    table = walks(60, 50).assign(x=np.tile([0.0, 1.0], 55))
    return make(future_inputs=["x"]).fit(table, progress=False), table


def future_of(forecaster, h=4):
    last = {"a": 60, "b": 50}
    return pd.concat([pd.DataFrame({"unique_id": n, "ds": range(t, t + h), "x": 0.5}) for n, t in last.items()])


def test_what_comes_out_is_a_forecast(fitted):
    forecaster, table = fitted
    future, given = future_of(forecaster), pd.DataFrame({"unique_id": ["b"], "ds": [52], "y": [11.25]})
    before = forecaster.predict(future=future)
    found = forecaster.scenario(given, future=future, n_paths=200)
    assert found.names == ("a", "b")
    assert (found.paths[1, :, 2] == 11.25).all()
    assert found.paths[1, :, 3].std() > 0
    assert found.effective_paths["a"] == pytest.approx(200)  # of which nothing is given
    assert 0 < found.effective_paths["b"] <= 200
    assert found.table([80])["ds"].tolist() == [60, 61, 62, 63, 50, 51, 52, 53]
    assert found.interval(80)["y-lo-80"][6] == 11.25
    assert found.probability("y >= 11.25 at step 3")["probability"][1] == 1
    assert np.isfinite(found.total()["y"]).all()
    for ask in (found.variance_parts, lambda: found.log_prob(given)):
        with pytest.raises(ValueError, match="scenario"):
            ask()
    # The same call gives the same numbers, and leaves no trace.
    again = forecaster.scenario(given, future=future, n_paths=200)
    np.testing.assert_array_equal(again.paths, found.paths)
    pd.testing.assert_frame_equal(forecaster.predict(future=future), before)
    only = forecaster.scenario(given, future=future, n_paths=50, series="b", h=3)
    assert only.paths.shape == (1, 50, 3, 1)
    from_table = forecaster.scenario(
        given.assign(ds=42),
        rows_between(table, 0, 40),
        future=future.assign(ds=future.groupby("unique_id").cumcount() + 40),
        n_paths=50,
    )
    assert (from_table.paths[1, :, 2] == 11.25).all()


def test_a_series_of_which_nothing_is_given_is_forecast_as_ever(fitted):
    forecaster, _ = fitted
    given = pd.DataFrame({"unique_id": ["b"], "ds": [52], "y": [11.25]})
    future = future_of(forecaster)
    found = forecaster.scenario(given, future=future, n_paths=20_000, seed=0).paths[0, :, :, 0]
    free = forecaster.forecast(future=future, n_paths=20_000, seed=1).paths[0, :, :, 0]
    for p in (0.1, 0.5, 0.9):  # two shares of 20,000
        share = (found <= np.quantile(free, p, axis=0)).mean(axis=0)
        assert (np.abs(share - p) < 4.5 * np.sqrt(2 * p * (1 - p) / 20_000)).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ds": 49}, r"series 'b', column 'ds': row 0 \(49\) is not after the last row known, 49"),
        ({"ds": 54}, "series 'b' at 54, after the last time of the forecast, 53: ask for more steps"),
        ({"unique_id": "c"}, "rows of series 'c', which is not among those forecast"),
        ({"y": np.nan}, "given has no value"),
        ({"y": np.inf}, "column 'y' is infinite"),
        ({"y": "high"}, "column 'y' must hold numbers, got 'high' in row 0"),
        ({"z": 1.0}, r"columns that the model predicts, \['y'\], but has the column 'z'"),
        ({"y": 1e300}, "beyond all that the model can hold"),
    ],
)
def test_mistakes_are_named(fitted, changes, message):
    forecaster, _ = fitted
    given = pd.DataFrame({"unique_id": ["b"], "ds": [52], "y": [11.25]}).assign(**changes)
    with pytest.raises(TableError, match=message):
        forecaster.scenario(given, future=future_of(forecaster), n_paths=5)


def test_tables_without_values_or_rows(fitted):
    forecaster, _ = fitted
    given, future = pd.DataFrame({"unique_id": ["b"], "ds": [52], "y": [1.0]}), future_of(forecaster)
    with pytest.raises(TableError, match="but has none of them"):
        forecaster.scenario(given.drop(columns="y"), future=future)
    with pytest.raises(TableError, match="no rows"):
        forecaster.scenario(given[:0], future=future)
    with pytest.raises(TableError, match="no column 'ds'"):
        forecaster.scenario(given.drop(columns="ds"), future=future)
    with pytest.raises(TableError, match="needs the future inputs"):
        forecaster.scenario(given)
    with pytest.raises(ValueError, match="not been fitted"):
        make().scenario(given)


def test_few_paths_are_reported(walker, monkeypatch, caplog):
    monkeypatch.setattr(conditioned_paths, "MOST_RUNS", 1)
    last, step = walks(60, 60)["y"].iloc[59], walker.forecast(n_paths=10).variance_parts()["y-within"][0] ** 0.5
    with caplog.at_level(logging.WARNING, "smc_transformer"):
        near = walker.scenario(series("a", [last], start=67), series="a", n_paths=400)
        assert near.effective_paths["a"] > 100
        assert not caplog.records
        far = walker.scenario(series("a", [last + 15 * step], start=61), series="a", n_paths=400)
    assert far.effective_paths["a"] < 100
    (record,) = caplog.records
    assert "the 400 paths of series 'a' in the scenario are worth" in record.getMessage()


def test_counts_and_logarithms():
    table = series("a", np.random.default_rng(0).poisson(4, 60))
    given = series("a", [9.0], start=62)
    for settings in (
        {"scaling": "none", "config": {**TINY, "observation": "negative_binomial"}},
        {"scaling": "log1p"},
        {"scaling": "robust"},
    ):
        found = make(**settings).fit(table, progress=False).scenario(given, n_paths=100)
        assert (found.paths[0, :, 2] == 9).all()
        if settings["scaling"] != "robust":
            assert found.paths.min() >= 0
    with pytest.raises(TableError, match="for values of at least 0"):
        make(scaling="log1p").fit(table, progress=False).scenario(given.assign(y=-1.0), n_paths=5)


def test_times_of_other_zones():
    times = pd.date_range("2024-03-30", periods=60, freq="h", tz="Europe/Berlin")
    forecaster = make(freq="h", calendar=["hour"]).fit(walks(60).assign(ds=times), progress=False)
    when = times[-1] + pd.Timedelta(hours=3)
    given = pd.DataFrame({"unique_id": ["a"], "ds": [when.tz_convert("UTC")], "y": [0.5]})
    found = forecaster.scenario(given, n_paths=20)
    assert (found.paths[0, :, 2] == 0.5).all()
    assert found.times[0][2] == when


def test_after_an_update_and_a_gap(fitted):
    table = walks(60)
    table.loc[57, "y"] = np.nan  # particles with inputs of their own
    forecaster = make().fit(head(table, 59), progress=False)
    forecaster.update(table[59:])
    found = forecaster.scenario(series("a", [0.0], start=63), n_paths=100)
    assert (found.paths[0, :, 3] == 0).all()
    assert np.isfinite(found.paths).all()
