"""The function that engines run, without an engine: whole series in, answers out, whatever the partition."""

import copy
import random

import numpy as np
import pandas as pd
import pytest
from helpers.engine_tables import assert_same_bits, in_order
from helpers.forecaster_tables import head, make, rows_between, walks

from smc_transformer.engines import EngineError, bucket, load, told_in_a_line
from smc_transformer.engines.bucket import Call, answers, parts, received, shaped, ship
from smc_transformer.engines.example import example_answer
from smc_transformer.engines.reasons import reason
from smc_transformer.forecaster import TableError
from smc_transformer.forecaster.foreign import engine_of

TABLE = walks(30, 24, 40, 26, 33)
CALLS = {
    "predict": {"level": [80], "n_paths": 5},
    "simulate": {"n_paths": 3},
    "score": {"level": [80]},
    "backtest": {"n_windows": 2, "n_paths": 5},
}


@pytest.fixture(scope="module")
def fitted():
    return make().fit(head(TABLE, 15), progress=False)


@pytest.mark.parametrize("verb", CALLS)
def test_any_partition_gives_the_same_bits(fitted, verb):
    shipped = ship(fitted, Call(verb, CALLS[verb]))
    expected = getattr(fitted, verb)(TABLE, **CALLS[verb])
    expected = in_order(expected.forecasts if verb == "backtest" else expected)
    names = TABLE["unique_id"].unique().tolist()
    random.Random(0).shuffle(names)
    for size in (1, 2, len(names)):
        tables = [TABLE[TABLE["unique_id"].isin(names[start : start + size])] for start in range(0, len(names), size)]
        found = pd.concat([shipped(table.sample(frac=1.0, random_state=1)) for table in tables])
        assert_same_bits(in_order(found), expected)


def test_a_stream_of_rows_is_answered_some_series_at_a_time(fitted, monkeypatch):
    monkeypatch.setattr(bucket, "ROWS_AT_ONCE", 50)
    shipped = ship(fitted, Call("score", {}))
    found = list(answers(shipped, (TABLE.iloc[start : start + 7] for start in range(0, len(TABLE), 7))))
    assert len(found) > 1
    assert_same_bits(pd.concat(found, ignore_index=True), fitted.score(TABLE))
    assert [len(part) for part in parts(TABLE, "unique_id")] == [30, 24, 40, 26, 33]
    monkeypatch.setattr(bucket, "ROWS_AT_ONCE", 60)
    assert [len(part) for part in parts(TABLE, "unique_id")] == [54, 40, 59]
    monkeypatch.setattr(bucket, "SERIES_AT_ONCE", 1)
    assert [len(part) for part in parts(TABLE, "unique_id")] == [30, 24, 40, 26, 33]
    monkeypatch.setattr(bucket, "ROWS_AT_ONCE", 1000)
    monkeypatch.setattr(bucket, "SERIES_AT_ONCE", 2)
    assert [len(part) for part in parts(TABLE, "unique_id")] == [54, 66, 33]
    assert_same_bits(shipped(TABLE), fitted.score(TABLE))


def test_a_process_reads_the_model_once(fitted):
    shipped = ship(fitted, Call("predict", {}))
    assert received(shipped.model) is received(bytes(bytearray(shipped.model)))
    assert received(shipped.model, fresh=True) is not received(shipped.model)
    assert not received(shipped.model).series  # only an update needs states
    assert received(ship(fitted, Call("update", {})).model, fresh=True).series == fitted.series


@pytest.mark.parametrize("verb", [*CALLS, "update"])
@pytest.mark.parametrize("collecting", [False, True])
def test_the_columns_are_known_ahead(fitted, verb, collecting):
    call = Call(verb, CALLS.get(verb, {}), collecting)
    table = rows_between(TABLE, 15, 20) if verb == "update" else TABLE
    shipped, states = ship(fitted, call), copy.deepcopy(fitted.series)
    found = shipped(table)
    like = example_answer(fitted, call, text=True)
    assert set(found.columns) <= set(like.columns)
    assert set(like.columns) - set(found.columns) <= {"error"}
    for column in found.columns.difference(["error", "states"]):
        assert found[column].dropna().dtype.kind == like[column].dtype.kind or verb == "update"
    assert fitted.series == states


def test_reasons_are_collected_and_what_concerns_all_is_raised(fitted):
    wrong = TABLE.copy()
    wrong.loc[wrong["unique_id"] == "c", "y"] = np.inf
    found = fitted.score(wrong, errors="collect")
    assert found.errors["unique_id"].tolist() == ["c"]
    assert "column 'y' is infinite" in found.errors["error"][0]
    assert_same_bits(found.table, fitted.score(TABLE[TABLE["unique_id"] != "c"]))
    assert len(found.both) == len(found.table) + 1
    with pytest.raises(TableError, match="no column 'ds'"):
        fitted.predict(TABLE.drop(columns="ds"), errors="collect")
    with pytest.raises(ValueError, match="errors must be one of"):
        fitted.predict(TABLE, errors="ignore")
    late = make().fit(TABLE, progress=False)
    found = late.backtest(TABLE, errors="collect")
    assert len(found.errors) == 5
    assert "trained on rows after the first cutoff" in found.errors["error"][0]


def test_an_update_that_is_collected_leaves_wrong_series_as_they_were(fitted):
    one, other = copy.deepcopy(fitted), copy.deepcopy(fitted)
    new = rows_between(TABLE, 15, 18)
    found = one.update(new.assign(y=new["y"].mask(new["unique_id"] == "b", np.inf)), errors="collect")
    assert found.errors["unique_id"].tolist() == ["b"]
    other.update(new[new["unique_id"] != "b"])
    assert_same_bits(one.predict(n_paths=5), other.predict(n_paths=5))


def test_engines_that_are_not_there_say_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    with pytest.raises(ImportError, match=r"pip install 'smc-transformer\[spark\]'"):
        load("spark")
    with pytest.raises(ValueError, match="there is no engine 'hadoop'"):
        load("hadoop")


def test_a_bucket_of_reasons_alone_keeps_the_types_of_columns():
    like = pd.DataFrame({"unique_id": ["a"], "ds": [pd.Timestamp("2024-02-01")], "target": [1], "y": [0.5]})
    reasons = pd.DataFrame({"unique_id": ["b"], "error": ["infinite"]})
    found = shaped(reasons, like.assign(error="reason"))
    assert [kind.kind for kind in found.dtypes[["ds", "target", "y"]]] == ["M", "i", "f"]
    assert found[["ds", "target", "y"]].isna().all(axis=None)
    assert found["error"].tolist() == ["infinite"]
    assert_same_bits(shaped(like, like), like)


def test_the_reason_of_a_worker_is_found_in_what_an_engine_says():
    trace = "Traceback (most recent call last):\n  File ...\nsmc_transformer.forecaster.table.TableError: series 'b'\n"
    later = "org.apache.spark.SparkException: Job aborted\n\tat org.apache\n"
    assert reason("[UDF] An exception was thrown" + "\n" + trace + later) == "series 'b'"
    assert reason("job:\n" + later) == "Job aborted"
    assert reason("\nno path /a/b\n") == "no path /a/b"
    with pytest.raises(TableError, match="ours"), told_in_a_line():
        raise TableError("ours")
    Foreign = type("RayTaskError", (Exception,), {"__module__": "ray.exceptions"})  # noqa: N806
    with pytest.raises(EngineError, match=r"^series 'b'$"), told_in_a_line():
        raise Foreign(trace)


def test_tables_are_recognised_by_their_package():
    Foreign = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})  # noqa: N806
    assert engine_of(Foreign()) == "spark"
    assert engine_of(TABLE) is None
    assert engine_of(None) is None
