"""Spark, Dask and Ray give the numbers of pandas, to the bit; a worker that dies costs time, not rows."""

import copy
import os
import signal
import threading

import numpy as np
import pandas as pd
import pytest
from helpers.engine_tables import ENGINES, assert_same_bits, in_order
from helpers.forecaster_tables import head, make, rows_between, walks

from benchmarks.workers import workers
from smc_transformer.forecaster.foreign import engine_of

pytestmark = pytest.mark.filterwarnings("ignore")  # engines warn about themselves

LENGTHS = (30, 24, 40, 26, 33, 28, 21, 36)
TABLE = walks(*LENGTHS)
CALLS = {
    "predict": {"level": [80], "quantiles": [0.1], "n_paths": 20},
    "simulate": {"n_paths": 3, "seed": 5},
    "score": {"level": [80]},
    "backtest": {"n_windows": 2, "step_size": 1, "n_paths": 10, "h": 2},
}


@pytest.fixture(scope="module")
def fitted():
    return make().fit(head(TABLE, 17), progress=False)


@pytest.mark.parametrize("verb", CALLS)
def test_numbers_are_those_of_pandas(cluster, fitted, verb):
    table = TABLE.assign(y=TABLE["y"].mask(TABLE.index == 60))
    found = getattr(fitted, verb)(cluster.put(table), **CALLS[verb])
    assert engine_of(found) == cluster.name  # a table of the engine
    expected = getattr(fitted, verb)(table, **CALLS[verb])
    expected = expected.forecasts if verb == "backtest" else expected
    assert len(expected) > 0
    assert_same_bits(cluster.get(found), in_order(expected))


@pytest.mark.parametrize("cluster", ENGINES, indirect=True)
@pytest.mark.parametrize("n_partitions", [1, 7])
def test_numbers_do_not_depend_on_the_partition(cluster, fitted, n_partitions):
    found = fitted.predict(cluster.put(TABLE, n_partitions), n_paths=5)
    assert_same_bits(cluster.get(found), in_order(fitted.predict(TABLE, n_paths=5)))


def test_days_come_back_as_days(cluster):
    dated = TABLE.assign(ds=pd.Timestamp("2024-02-01") + pd.to_timedelta(TABLE["ds"], unit="D"))
    daily = make(freq="D").fit(head(dated, 17), progress=False)
    expected = in_order(daily.predict(dated, n_paths=5))
    assert_same_bits(cluster.get(daily.predict(cluster.put(dated), n_paths=5)), expected)


def test_an_update_moves_the_states_and_tells_the_surprise(cluster, fitted):
    alone, shared = copy.deepcopy(fitted), copy.deepcopy(fitted)
    new = pd.concat((rows_between(TABLE, 17, 21), walks(12).assign(unique_id="new")), ignore_index=True)
    expected = alone.update(new, distrust=99)
    assert_same_bits(cluster.get(shared.update(cluster.put(new), distrust=99)), in_order(expected))
    assert set(shared.series) == set(alone.series)
    assert_same_bits(in_order(shared.predict(n_paths=10)), in_order(alone.predict(n_paths=10)))


def test_a_wrong_series_is_told_and_the_others_go_on(cluster, fitted):
    wrong = TABLE.copy()
    wrong.loc[wrong["unique_id"] == "c", "y"] = np.inf
    wrong.loc[wrong["unique_id"] == "e", "y"] = np.nan
    expected = fitted.predict(wrong, n_paths=10, errors="collect")
    assert sorted(expected.errors["unique_id"]) == ["c", "e"]
    assert sorted(expected.table["unique_id"].unique()) == list("abdfgh")
    found = fitted.predict(cluster.put(wrong), n_paths=10, errors="collect")
    errors = cluster.get(found.errors)
    assert errors["unique_id"].tolist() == ["c", "e"]
    assert "infinite" in errors["error"][0]
    assert "nothing to start from" in errors["error"][1]
    assert_same_bits(cluster.get(found.table), in_order(expected.table))


def test_without_collecting_a_wrong_series_is_an_error_when_it_is_computed(cluster, fitted):
    wrong = TABLE.assign(y=TABLE["y"].mask(TABLE["unique_id"] == "c", np.inf))
    lazy = fitted.predict(cluster.put(wrong), n_paths=5)
    with pytest.raises(Exception, match="infinite"):
        cluster.get(lazy)


def test_what_an_engine_cannot_do_is_said(cluster, fitted):
    table = cluster.put(TABLE)
    with pytest.raises(ValueError, match="no column 'y'"):
        fitted.predict(cluster.put(TABLE.drop(columns="y")))
    with pytest.raises(ValueError, match="filtering the table"):
        fitted.predict(table, series="a")
    with pytest.raises(ValueError, match="nothing is trained"):
        fitted.backtest(table, refit=True)


@pytest.mark.parametrize("cluster", ENGINES, indirect=True)
def test_a_killed_worker_costs_time_not_rows(cluster, fitted):
    cluster.get(fitted.predict(cluster.put(TABLE), n_paths=1))  # the workers have loaded what they need
    many = pd.concat([TABLE.assign(unique_id=TABLE["unique_id"] + str(number)) for number in range(30)])
    killed, done = [], threading.Event()
    killer = threading.Thread(target=_kill_one, args=(killed, done))
    killer.start()
    try:
        found = cluster.get(fitted.predict(cluster.put(many.reset_index(drop=True)), n_paths=500))
    finally:
        done.set()
        killer.join()
    assert killed, "no worker was seen at work"
    assert found["unique_id"].nunique() == 30 * len(LENGTHS)
    assert_same_bits(found, in_order(fitted.predict(many, n_paths=500)))


def _kill_one(killed, done):
    """Kill the first worker that has computed for a moment since the call."""
    before = {pid: usage.cpu_seconds for pid, usage in workers().items()}
    while not done.wait(0.02):
        for pid, usage in workers().items():
            if usage.cpu_seconds - before.setdefault(pid, usage.cpu_seconds) > 0.3:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
