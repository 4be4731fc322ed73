"""The page's numbers are the forecaster's."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.report.page import collect, collect_page
from smc_transformer.report.page.data import QUANTILES

TINY = {"d_model": 8, "d_ff": 8, "window": 6, "n_particles": 5}
SHORT = {"likelihood_steps": 2, "forecast_steps": 1, "batch_size": 8, "validations": 1}
HORIZON = 4


def make_table(n_rows=60, freq="h"):
    """Two series of two targets, one with gaps, and a known input."""
    random = np.random.default_rng(0)
    parts = []
    for number, name in enumerate(("north", "south")):
        times = pd.date_range("2024-01-01", periods=n_rows, freq=freq) if freq else np.arange(n_rows)
        walk = 5 * number + 0.3 * random.normal(size=(n_rows, 2)).cumsum(axis=0)
        sun = np.sin(np.arange(n_rows) / 4)
        parts.append(
            pd.DataFrame({"unique_id": name, "ds": times, "y": walk[:, 0], "z": np.exp(walk[:, 1]), "sun": sun})
        )
    parts[1].loc[50:54, "y"] = np.nan
    parts[1].loc[52, "z"] = np.nan
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def future():
    """The known input after the rows of the table."""
    ahead = make_table(60 + HORIZON)
    return ahead[ahead["ds"] >= pd.Timestamp("2024-01-01") + pd.Timedelta(hours=60)]


@pytest.fixture(scope="module")
def forecaster(table):
    settings = {"config": TINY, "training": SHORT, "n_particles": 12, "scaling": {"y": "standard", "z": "log1p"}}
    made = Forecaster(input_size=10, horizon=HORIZON, targets=["y", "z"], future_inputs=["sun"], freq="h", **settings)
    early = table[table["ds"] < pd.Timestamp("2024-01-01") + pd.Timedelta(hours=48)]
    return made.fit(early, progress=False)


@pytest.fixture(scope="module")
def backtest(forecaster, table):
    return forecaster.backtest(table, 3, level=(50, 80, 95), n_paths=100, progress=False)


@pytest.fixture(scope="module")
def page(forecaster, table, future, backtest):
    return collect_page(forecaster, table, backtest=backtest, future=future, n_paths=100, n_shown=5, history=30)


def test_the_forecast_is_the_forecasters(forecaster, table, future, page):
    forecast = forecaster.forecast(table, future=future, n_paths=100)
    quantiles = forecast.quantile(list(QUANTILES))
    parts, paths = forecast.variance_parts(), forecast.sample()
    for series in page.series:
        rows = quantiles["unique_id"] == series.name
        assert series.forecast_times == [time.isoformat() for time in quantiles.loc[rows, "ds"]]
        for target, name in zip(series.targets, page.targets, strict=True):
            np.testing.assert_allclose(target.mean, forecast.mean.loc[rows, name], rtol=1e-6)
            for values, level in zip(target.quantiles, QUANTILES, strict=True):
                np.testing.assert_allclose(values, quantiles.loc[rows, f"{name}-q-{100 * level:g}"], rtol=1e-6)
            for part in ("between", "within"):
                np.testing.assert_allclose(getattr(target, part), parts.loc[rows, f"{name}-{part}"], rtol=1e-6)
            assert len(target.paths) == 5
            for number, path in enumerate(target.paths):
                own = paths[(paths["unique_id"] == series.name) & (paths["sample_id"] == number)]
                np.testing.assert_allclose(path, own[name], rtol=1e-6)
    assert [target.variance_of for target in page.series[0].targets] == ["y", "log(1 + z)"]


def test_the_history_is_the_tables_with_its_gaps(table, page):
    for series in page.series:
        rows = table[table["unique_id"] == series.name].tail(30)
        assert series.history_times == [time.isoformat() for time in rows["ds"]]
        for target, name in zip(series.targets, page.targets, strict=True):
            values = [np.nan if value is None else value for value in target.history]
            np.testing.assert_allclose(values, rows[name], rtol=1e-6)
    assert page.series[1].targets[0].history[20:25] == [None] * 5


def test_particle_health_is_possible(page):
    for series in page.series:
        health = series.health
        assert health.n_particles == 12
        assert health.times == series.history_times[1:]
        assert all(1 <= value <= 12.001 for value in health.ess)
        assert all(1 <= value <= 12 and value == int(value) for value in health.unique)
        assert health.unique[-1] == 12  # the last particles are their own ancestors
        assert sorted(health.unique) == health.unique


def test_attention_is_that_of_the_forecasts_particles(page):
    for series in page.series:
        attention = series.attention
        assert attention.times == series.history_times[-6:]
        assert sum(attention.mean) == pytest.approx(1, abs=1e-5)
        for low, high in zip(attention.lower, attention.upper, strict=True):
            assert 0 <= low <= high <= 1


def test_the_particles_that_look_are_those_that_forecast(forecaster, table, future, monkeypatch):
    forecasting, looking = [], []
    forecast_as_ever, look_as_ever = Fitted.forecast, collect.series_attention

    def forecast(fitted, following, future, *rest):
        forecasting.extend(following.fleet.take([name]) for name in future)
        return forecast_as_ever(fitted, following, future, *rest)

    def look(forecaster, following, name, *rest):
        looking.append(following.fleet.take([name]))
        return look_as_ever(forecaster, following, name, *rest)

    monkeypatch.setattr(Fitted, "forecast", forecast)
    monkeypatch.setattr(collect, "series_attention", look)
    collect_page(forecaster, table, future=future, n_paths=10, history=5)
    assert len(forecasting) == 2
    for one, other in zip(forecasting, looking, strict=True):
        for name in ("keys", "trajectories", "log_weights"):
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_the_backtest_is_the_forecasters(backtest, page):
    for found, (_, metrics) in zip(page.backtest, backtest.metrics.iterrows(), strict=True):
        rows = backtest.forecasts
        name = metrics["target"]
        assert found.n_forecasts == 6
        assert found.n_values == rows[f"{name}-observed"].notna().sum() < len(rows)  # what is missing is not compared
        assert found.mse == pytest.approx(metrics["mse"], rel=1e-6)
        assert found.crps == pytest.approx(metrics["crps"], rel=1e-6)
        assert found.energy_score == pytest.approx(metrics["energy_score"], rel=1e-6)
        assert [scores.level for scores in found.levels] == [50, 80, 95]
        widest = found.levels[-1]
        for score in ("picp", "mpiw", "winkler"):
            assert getattr(widest, score) == pytest.approx(metrics[score], rel=1e-6)
        assert sum(found.pit) == found.n_values
        assert len(widest.picp_by_step) == HORIZON


def test_coverage_by_step_and_calibration_by_hand(backtest, page):
    rows = backtest.forecasts
    counts = [[0, 0] for _ in range(HORIZON)]
    for _, window in rows.groupby(["unique_id", "cutoff"]):
        for step, (_, row) in enumerate(window.iterrows()):
            if not np.isnan(row["y-observed"]):
                counts[step][0] += row["y-lo-80"] <= row["y-observed"] <= row["y-hi-80"]
                counts[step][1] += 1
    assert page.backtest[0].levels[1].picp_by_step == pytest.approx([held / n for held, n in counts], rel=1e-6)
    pit = [value for value in rows["y-pit"] if not np.isnan(value)]
    inside = sum(0.25 <= value <= 0.75 for value in pit) / len(pit)
    assert page.backtest[0].calibration_coverage[9] == pytest.approx(inside, rel=1e-6)
    assert page.backtest[0].calibration_levels[9] == 0.5


def test_collecting_leaves_the_forecaster_as_it_was(forecaster, table, future):
    before = forecaster.predict(future=early_future(forecaster), n_paths=50)
    page = collect_page(forecaster, table, future=future, n_paths=50, history=12, backtest=1, progress=False)
    assert [scores.level for scores in page.backtest[0].levels] == [50, 80, 95]
    assert page.backtest[0].n_forecasts == 2
    pd.testing.assert_frame_equal(forecaster.predict(future=early_future(forecaster), n_paths=50), before)


def early_future(forecaster):
    """The known input after the rows that the forecaster was fitted on."""
    times = pd.date_range("2024-01-01", periods=48 + HORIZON, freq="h")[48:]
    return pd.concat(pd.DataFrame({"unique_id": name, "ds": times, "sun": 0.5}) for name in forecaster.series)


def test_without_a_table_there_is_the_forecast_after_the_last_rows(forecaster):
    page = collect_page(forecaster, future=early_future(forecaster), n_paths=50)
    for series in page.series:
        assert len(series.history_times) == len(series.targets[0].history) == 5 * HORIZON
        assert series.history_times[-1] == "2024-01-02T23:00:00"
        assert series.health is None
        assert series.attention.times[-1] == "2024-01-02T23:00:00"
    assert page.backtest == []
    with pytest.raises(ValueError, match="give it as df"):
        collect_page(forecaster, future=early_future(forecaster), n_paths=50, backtest=2)


def test_settings_are_text_and_all_is_json(page):
    names = dict(page.settings)
    assert names["horizon"] == "4"
    assert names["targets"] == "y, z"
    assert (names["n particles"], names["model: n particles"]) == ("12", "5")  # in forecasts, and in training
    assert names["model: d model"] == "8"
    assert all(isinstance(value, str) for value in names.values())
    json.dumps(asdict(page), allow_nan=False)


def test_whole_number_times_and_names():
    table = make_table(freq=None).drop(columns=["z", "sun"])
    table["unique_id"] = table["unique_id"].map({"north": 1, "south": 2})
    made = Forecaster(input_size=10, horizon=2, freq=1, config=TINY, training=SHORT, n_particles=8)
    page = collect_page(made.fit(table, progress=False), table, n_paths=20, history=8)
    assert [series.name for series in page.series] == ["1", "2"]
    assert page.series[0].forecast_times == [60, 61]
    assert page.series[0].attention.times == list(range(54, 60))


def test_times_with_a_zone_become_utc():
    from smc_transformer.report.page.data import plain_times

    times = pd.date_range("2024-03-31", periods=3, freq="h", tz="Europe/Berlin")
    assert plain_times(times) == ["2024-03-30T23:00:00", "2024-03-31T00:00:00", "2024-03-31T01:00:00"]


def test_rows_in_another_zone_give_the_page_of_the_same_instants_in_that_of_the_fit():
    """The hour of the day is an input: panels that read it in another zone would show another filter."""
    table = make_table().drop(columns=["z", "sun"]).dropna()
    table["ds"] = table["ds"].dt.tz_localize("Europe/Berlin")
    table["price"] = table["ds"].dt.hour / 24.0
    table = table[table["unique_id"] == "north"]
    ahead = pd.date_range(table["ds"].iloc[-1], periods=HORIZON + 1, freq="h")[1:]
    future = pd.DataFrame({"unique_id": "north", "ds": ahead, "price": 0.5})
    settings = {"config": TINY, "training": SHORT, "n_particles": 12, "calendar": ["hour"], "future_inputs": ["price"]}
    forecaster = Forecaster(input_size=10, horizon=HORIZON, freq="h", **settings).fit(table, progress=False)

    def series_of(zone):
        rows, known = (one.assign(ds=one["ds"].dt.tz_convert(zone)) for one in (table, future))
        return collect_page(forecaster, rows, future=known, n_paths=20, history=20, seed=3).series

    assert series_of("Asia/Tokyo") == series_of("Europe/Berlin")
