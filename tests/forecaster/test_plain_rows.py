"""A few plain rows go another way through an update: same answers, states and errors as the ways for all tables."""

import contextlib

import numpy as np
import pandas as pd
import pytest
from helpers.followed import assert_same_following
from helpers.forecaster_tables import SHORT, TINY, walks

from smc_transformer.forecaster import Forecaster, facade
from smc_transformer.forecaster import surprise as surprise_module
from smc_transformer.forecaster import tick as tick_module
from smc_transformer.forecaster.plain_rows import FEW, read_plain
from smc_transformer.forecaster.surprise import surprise_rows, table_of
from smc_transformer.forecaster.table import TableError
from smc_transformer.forecaster.tick import tick

OPTIONS = {"input_size": 10, "horizon": 4, "training": SHORT, "n_particles": 9, "config": TINY, "scaling": "local"}


def daily():
    table = walks(40, 34, 37)
    table["ds"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(table["ds"], unit="D")
    return Forecaster(freq="D", seasons=[7], calendar=["weekday", "month"], **OPTIONS), table


def hourly():
    """Over a change of the clocks, with two targets, an input that is known ahead and one that is not."""
    table = walks(40, 34, 37)
    table["ds"] = pd.date_range("2024-10-26", periods=60, freq="h", tz="Europe/Paris")[table["ds"]]
    table["w"], table["z"], table["x"] = table["y"] * 2 + 1, table["y"] - 3, np.arange(len(table)) % 3
    inputs = {"past_inputs": ["z"], "future_inputs": ["x"], "calendar": ["hour", "day_of_year"]}
    return Forecaster(freq="h", targets=["y", "w"], **inputs, **OPTIONS), table


def monthly():
    table = walks(40, 34, 37)
    table["ds"] = pd.date_range("2010-01-01", periods=60, freq="MS")[table["ds"]]
    return Forecaster(freq="MS", **OPTIONS), table


def numbered():
    return Forecaster(freq=2, **OPTIONS), walks(40, 34, 37).assign(ds=lambda table: 2 * table["ds"])


CASES = {"daily": daily, "hourly": hourly, "monthly": monthly, "numbered": numbered}
STEPS = {"daily": pd.DateOffset(days=1), "hourly": pd.Timedelta(hours=1), "monthly": pd.DateOffset(months=1)}
STEPS["numbered"] = 2


@pytest.fixture(scope="module", params=CASES)
def saved(request, tmp_path_factory):
    forecaster, table = CASES[request.param]()
    folder = tmp_path_factory.mktemp(request.param) / "model"
    forecaster.fit(table, progress=False).save(folder)
    return request.param, folder


def next_rows(forecaster, kind, random, n_rows=3):
    last = forecaster.fitted.following.last_times()
    names = random.permutation(list(last))[:n_rows].tolist()
    table = pd.DataFrame({"unique_id": names, "ds": [last[name] + STEPS[kind] for name in names]})
    for column in (*forecaster.settings.modelled, *forecaster.settings.future_inputs):
        table[column] = random.normal(size=len(names)) * 5
    return table


def with_cell(column, value):
    def change(table, random):
        table = table.astype({column: object}) if isinstance(value, str) else table
        table.loc[table.index[random.integers(len(table))], column] = value
        return table

    return change


def shifted(by):
    """A row too early or late."""

    def change(table, random):
        times, place = table["ds"].tolist(), int(random.integers(len(table)))
        times[place] = _other(times[place], by)
        table["ds"] = times
        return table

    return change


def _other(time, by):
    return time + by if isinstance(time, int) else time + by * pd.Timedelta(hours=1)


def of_type(column, kind):
    return lambda table, _: table.astype({column: kind})


CHANGES = {
    "as it is": lambda table, _: table,
    "one row": lambda table, _: table[:1],
    "other order of columns": lambda table, random: table[random.permutation(table.columns).tolist()],
    "extra columns": lambda table, _: table.assign(note="text", other=[[1]] * len(table)),
    "an index": lambda table, random: table.set_index(pd.Index(random.permutation(len(table)) + 5)),
    "twice the same row": lambda table, _: pd.concat((table, table[:1])),
    "a later row too": lambda table, _: pd.concat((table[:1], table[:1], table[1:])),
    "missing": with_cell("y", np.nan),
    "all missing": lambda table, _: table.assign(y=np.nan),
    "infinite": with_cell("y", np.inf),
    "far": with_cell("y", 1e200),
    "far for the model": with_cell("y", 1e30),
    "unknown series": with_cell("unique_id", "new"),
    "no name": with_cell("unique_id", None),
    "names as objects": of_type("unique_id", object),
    "names as categories": of_type("unique_id", "category"),
    "numbers as text": of_type("y", str),
    "numbers in 32 bits": of_type("y", "float32"),
    "whole numbers": lambda table, _: table.assign(y=np.arange(len(table))),
    "numbers that may be missing": of_type("y", "Float64"),
    "flags": lambda table, _: table.assign(y=True),
    "complex": of_type("y", complex),
    "no numbers": with_cell("y", "much"),
    "no column": lambda table, _: table.drop(columns="y"),
    "no names": lambda table, _: table.drop(columns="unique_id"),
    "no times": lambda table, _: table.drop(columns="ds"),
    "two columns of a name": lambda table, _: table.rename(columns={"ds": "y"}),
    "twice the column": lambda table, _: pd.concat((table, table[["y"]]), axis=1),
    "no rows": lambda table, _: table[:0],
    "a step too late": shifted(1),
    "many steps too late": shifted(48),
    "a step too early": shifted(-1),
    "times as text": lambda table, _: table.assign(ds=[str(time) for time in table["ds"]]),
    "times as numbers": lambda table, _: table.assign(ds=1.5),
    "levels of columns": lambda table, _: pd.concat({"a": table}, axis=1),
    "not a table": lambda table, _: table.to_dict("list"),
    "one column": lambda table, _: table["y"],
    "a kind of table": lambda table, _: type("Own", (pd.DataFrame,), {})(table),
}


def other_zone(table, _):
    if getattr(table["ds"].dtype, "tz", None) is not None:
        return table.assign(ds=table["ds"].dt.tz_convert("Asia/Tokyo"))
    return table.assign(ds=pd.to_datetime(table["ds"]).dt.tz_localize("Asia/Tokyo"))


CHANGES["another zone"] = other_zone
CHANGES["no zone"] = lambda table, _: table.assign(ds=pd.to_datetime(table["ds"], utc=True).dt.tz_localize(None))
CHANGES["another unit"] = lambda table, _: table.assign(ds=pd.to_datetime(table["ds"]).dt.as_unit("ns"))
CHANGES["a missing time"] = lambda table, _: table.assign(ds=table["ds"].where(table.index > 0))


@contextlib.contextmanager
def way(name, monkeypatch):
    with monkeypatch.context() as patch:
        if name == "columns":
            patch.setattr(tick_module, "read_plain", lambda *_: None)
        if name == "series by series":
            patch.setattr(facade, "tick", lambda *_: None)
        yield


def outcome(forecaster, table, monkeypatch, name, **options):
    """The answer, or what was said instead."""
    with way(name, monkeypatch):
        try:
            return forecaster.update(table, **options)
        except (TableError, TypeError, ValueError) as error:
            if type(error) not in (TableError, TypeError, ValueError):  # one of the checks of shapes
                raise
            return type(error), str(error)


WAYS = ("plain", "columns", "series by series")


@pytest.mark.parametrize("seed", range(2))
def test_odd_tables(saved, seed, monkeypatch):
    """One table after the other, whatever has become of those before."""
    kind, folder = saved
    random = np.random.default_rng(seed)
    forecasters = {name: Forecaster.load(folder) for name in WAYS}
    n_answers = 0
    for number, change in enumerate(random.permutation(list(CHANGES)).tolist()):
        draws = [np.random.default_rng((seed, number)) for _ in WAYS]
        options = {"distrust": [None, None, 70][number % 3], "level": [(80, 95), 90, (50.5,), ()][number % 4]}
        found = []
        for name, own in zip(WAYS, draws, strict=True):
            table = next_rows(forecasters[name], kind, own, 1 if number % 3 == 0 else 3)
            try:
                table = CHANGES[change](table, own)
            except (TypeError, ValueError, KeyError):  # there is no such table of these times
                break
            found.append(outcome(forecasters[name], table, monkeypatch, name, **options))
        for other in found[1:]:
            if isinstance(other, pd.DataFrame):
                pd.testing.assert_frame_equal(found[0], other, check_exact=True)
                n_answers += 1
            else:
                assert found[0] == other, change
    for name in WAYS[1:]:
        assert_same_following(forecasters["plain"], forecasters[name])
    assert n_answers > 20


def test_plain_rows_are_taken_so(saved, monkeypatch):
    """Or the tests above would show nothing."""
    kind, folder = saved
    forecaster, taken, general = Forecaster.load(folder), [], []
    read_rows = tick_module.read_rows
    monkeypatch.setattr(tick_module, "read_plain", lambda *given: taken.append(read_plain(*given)) or taken[-1])
    monkeypatch.setattr(tick_module, "read_rows", lambda *given, **more: general.append(1) or read_rows(*given, **more))
    random = np.random.default_rng(0)
    for n_rows in (1, 3):
        forecaster.update(next_rows(forecaster, kind, random, n_rows))
    assert len(taken) == 2
    assert None not in taken
    assert not general


def test_many_rows_are_left_to_columns():
    forecaster, table = daily()
    forecaster.fit(table, progress=False)
    known = forecaster.fitted.some_time
    row = next_rows(forecaster, "daily", np.random.default_rng(0), 1)
    assert read_plain(pd.concat([row] * FEW), forecaster.settings, known) is not None
    assert read_plain(pd.concat([row] * (FEW + 1)), forecaster.settings, known) is None


def test_an_answer_has_memory_of_its_own(saved, monkeypatch):
    """Whoever changes it changes neither the table that was given nor a later answer."""
    kind, folder = saved
    forecaster, random = Forecaster.load(folder), np.random.default_rng(0)
    table = next_rows(forecaster, kind, random, 1)
    before = table.copy()
    answer = forecaster.update(table)
    answer.loc[0, ["unique_id", "target"]] = "other"
    answer.loc[0, "ds"] = answer.loc[0, "ds"] * 2 if kind == "numbered" else answer.loc[0, "ds"] + pd.Timedelta(days=3)
    answer.loc[0, "value"] = 0.0
    answer.columns.name = answer.index.name = "other"
    pd.testing.assert_frame_equal(table, before)
    later = forecaster.update(next_rows(forecaster, kind, random, 1))
    assert later["target"].tolist() == list(forecaster.settings.targets)
    assert (later.columns.name, later.index.name) == (None, None)
    assert tick(forecaster.fitted, before, [80], None) is None  # its time is taken


ZONED = pd.date_range("2024-01-01", periods=3, freq="D", tz="Europe/Paris")


@pytest.mark.parametrize("times", [ZONED, ZONED.tz_localize(None), ZONED.as_unit("s"), pd.Index([1, 2, 3])])
@pytest.mark.parametrize("names", [["a", "b", "c"], [1, 2, 3], [("a", 1), ("b", 2), ("c", 3)]])
@pytest.mark.parametrize("n_rows", [0, 1, 3])
def test_tables_from_blocks_are_those_from_columns(times, names, n_rows, monkeypatch):
    forecaster, _ = daily()
    settings = forecaster.settings
    numbers = np.random.default_rng(0).random((4, n_rows))
    columns = (names[:n_rows], times[:n_rows], ["y"] * n_rows, *numbers[:3], numbers[3] > 0.5)
    for levels in ([80, 95], []):
        found = surprise_rows(settings, columns, levels, None)
        with monkeypatch.context() as patch:
            patch.setattr(surprise_module, "from_blocks", None)
            patch.setattr(surprise_module, "as_column", lambda values: values)
            pd.testing.assert_frame_equal(found, surprise_rows(settings, columns, levels, None))
        assert found.copy().sort_values("pit").equals(found.sort_values("pit"))


def test_a_target_may_be_called_as_a_column_of_the_answer():
    """Names of columns that come twice are left to pandas, where the last one counts."""
    numbers, flags = {"value": np.ones(2), "pit": np.zeros(2)}, {"outside-80": np.ones(2, bool)}
    table = table_of({"value": pd.array(["a", "b"], dtype="string")}, numbers, flags)
    assert table.columns.tolist() == ["value", "pit", "outside-80"]
    assert table["value"].tolist() == [1.0, 1.0]
