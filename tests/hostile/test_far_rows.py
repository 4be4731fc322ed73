"""A row in the year 9999, or one after a gap without end: named in an error by all verbs, whatever times look like."""

import re

import numpy as np
import pandas as pd
import pytest
from helpers.command_tables import QUICK, fails
from helpers.forecaster_tables import make, series

from smc_transformer.forecaster import TableError
from smc_transformer.forecaster.frequency import FARTHEST
from smc_transformer.forecaster.stepping import Stepper

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run the package

N_KNOWN = 40
"""Rows that a forecaster has been fitted on; those of the tables here come after them."""


def stamps(unit):
    return lambda days: pd.Series(np.array(days, f"datetime64[{unit}]"))


KINDS = {  # how a column holds days
    "nanoseconds": stamps("ns"),
    "microseconds": stamps("us"),
    "milliseconds": stamps("ms"),
    "seconds": stamps("s"),
    "text": lambda days: pd.Series([str(day) for day in days], dtype=object),
    "dates": lambda days: pd.Series([day.item() for day in days], dtype=object),
    "timestamps": lambda days: pd.Series([pd.Timestamp(day) for day in days], dtype=object),
    "UTC": lambda days: stamps("us")(days).dt.tz_localize("UTC"),
    "a zone": lambda days: KINDS["UTC"](days).dt.tz_convert("Asia/Tokyo"),  # whose clocks do not change
    "periods": lambda days: pd.Series(pd.PeriodIndex([str(day) for day in days], freq="D")),
    "numbers": lambda days: pd.Series([(day - FIRST).astype(int) for day in days]),
}
FIRST = np.datetime64("2024-01-01", "D")
FAR = [np.datetime64(day, "D") for day in ("9999-12-31", "0001-01-01")]
FAR_OF_NANOSECONDS = [np.datetime64(day, "D") for day in ("2262-04-11", "1700-01-01")]
GAP = 20_000
"""Days."""


def days_with_a_far_one(kind, start):
    """Days of short tables, all next to each other but for a far one, or a gap; and the place of what is wrong."""
    for n_rows in (2, 3, 5):
        for place in sorted({0, n_rows // 2, n_rows - 1}):
            usual = FIRST + start + np.arange(n_rows)
            for far in FAR_OF_NANOSECONDS if kind == "nanoseconds" else FAR:
                yield np.where(np.arange(n_rows) == place, far, usual), place
            if place:
                yield np.where(np.arange(n_rows) < place, usual, usual + GAP), place


def table(times, name="a"):
    return pd.DataFrame({"unique_id": name, "ds": times, "y": np.sin(np.arange(len(times)))})


@pytest.fixture(scope="module", params=KINDS)
def known(request):
    """How times are held, and a forecaster of series with such."""
    times = KINDS[request.param](FIRST + np.arange(N_KNOWN))
    forecaster = make(freq=None, input_size=None)
    return request.param, forecaster.fit(pd.concat((table(times), table(times, "b"))), progress=False)


UNTRAINED = {
    "fit": lambda _, rows: make(freq=None, input_size=None).fit(rows, progress=False),
    "fit, frequency given": lambda known, rows: make(freq=known.settings.freq).fit(rows, progress=False),
    "backtest of no fit": lambda _, rows: make(freq=None, input_size=None).backtest(rows, progress=False),
}
TRAINED = {
    "predict": lambda known, rows: known.predict(rows, n_paths=2),
    "simulate": lambda known, rows: known.simulate(rows, n_paths=2),
    "score": lambda known, rows: known.score(rows),
    "one_step": lambda known, rows: known.one_step(rows, n_paths=2),
    "follow": lambda known, rows: known.follow(rows),
    "backtest": lambda known, rows: known.backtest(rows, h=1, progress=False),
    "update": lambda known, rows: known.update(rows),
    "scenario": lambda known, rows: known.scenario(rows, n_paths=2),
}


def refuses(verb, known, rows, place):
    """That the row with the far time is named, or one beside it: of two rows, either may be the wrong one."""
    with pytest.raises(TableError) as error:
        verb(known, rows)
    message = str(error.value)
    named = {int(row) for row in re.findall(r"\brow (\d+)\b", message)}
    assert named & {place - 1, place, place + 1}, (rows, message)
    assert "\n" not in message
    assert len(message) < 600, message


@pytest.mark.parametrize("verb", TRAINED)
def test_verbs_of_a_fit_name_a_far_row(known, verb):
    kind, forecaster = known
    before = forecaster.predict(h=1, n_paths=2)
    for days, place in days_with_a_far_one(kind, N_KNOWN):
        rows = table(KINDS[kind](days))
        refuses(TRAINED[verb], forecaster, rows, place)
        usual = table(KINDS[kind](FIRST + N_KNOWN + np.arange(4)), "b")
        refuses(TRAINED[verb], forecaster, pd.concat((usual, rows), ignore_index=True), 4 + place)
    pd.testing.assert_frame_equal(forecaster.predict(h=1, n_paths=2), before)


@pytest.mark.parametrize("verb", UNTRAINED)
def test_a_fit_names_a_far_row(known, verb):
    kind, forecaster = known
    for days, place in days_with_a_far_one(kind, 0):
        rows = table(KINDS[kind](days))
        usual = table(KINDS[kind](FIRST + np.arange(20)), "b")
        refuses(UNTRAINED[verb], forecaster, pd.concat((usual, rows), ignore_index=True), 20 + place)
        refuses(UNTRAINED[verb], forecaster, pd.concat((rows, usual), ignore_index=True), place)
        if len(rows) > 2 or "given" in verb:  # of two rows alone, any time between them is a step
            refuses(UNTRAINED[verb], forecaster, rows, place)


@pytest.mark.parametrize(
    ("kind", "far"),
    [(kind, "9999-12-31") for kind in KINDS if kind not in ("nanoseconds", "numbers")]
    + [("nanoseconds", "2262-04-11")],
)
def test_two_rows_of_which_one_is_far_are_named_though_any_step_could_be_theirs(kind, far):
    days = np.array([FIRST, np.datetime64(far)])
    for verb in ("fit", "backtest of no fit"):
        with pytest.raises(TableError, match=r"column 'ds'.* row 1 \((9999|2262)-"):
            UNTRAINED[verb](None, table(KINDS[kind](days)))
        with pytest.raises(TableError, match=r"row 0 \((9999|2262)-.* row 1 \(2024-"):
            UNTRAINED[verb](None, table(KINDS[kind](days[::-1])))


def test_two_rows_further_apart_than_a_duration_of_nanoseconds():
    with pytest.raises(TableError, match=r"118339 days, .* apart; .* from row 0 \(1700-.*\) to row 1 \(2024-"):
        make(freq=None).fit(table(stamps("ns")(["1700-01-01", "2024-01-02"])), progress=False)


def test_two_whole_numbers_further_apart_than_whole_numbers_reach():
    for times in ([-(2**63), 0], [-(2**62), 2**62 - 1]):
        with pytest.raises(TableError, match=r"the longest step is that from row 0 \(-\d+\) to row 1 \(\d+\)"):
            make(freq=None).fit(table(times), progress=False)


def test_a_table_whose_forecast_cannot_be_dated_is_refused_before_the_training():
    rows = table(pd.date_range(end="2262-04-10", periods=30, unit="ns"))
    with pytest.raises(TableError, match=r"4 steps of freq='D' after row 29 \(2262-04-10 00:00:00\) cannot be dated"):
        make(freq="D").fit(rows, progress=False)
    found = make(freq="D", horizon=1).fit(rows, progress=False).predict()
    assert found["ds"].tolist() == [pd.Timestamp("2262-04-11")]


def test_one_row_at_the_end_of_all_times(known):
    kind, forecaster = known
    last = FAR_OF_NANOSECONDS if kind == "nanoseconds" else FAR
    times = pd.Series([FARTHEST - 1]) if kind == "numbers" else KINDS[kind](last[:1])
    rows = pd.concat((table(KINDS[kind](FIRST + N_KNOWN + np.arange(4)), "b"), table(times, "new")), ignore_index=True)
    refuses(TRAINED["predict"], forecaster, rows, 4)
    refuses(TRAINED["update"], forecaster, rows, 4)
    assert forecaster.series == ["a", "b"]


def test_a_row_far_before_the_last_one_known_is_refused_whatever_the_unit():
    times = pd.date_range("2024-01-01", periods=N_KNOWN, unit="ns")
    forecaster = make(freq="D").fit(table(times), progress=False)
    with pytest.raises(TableError, match=r"row 0 \(1700-01-01 00:00:00\) is not after the last row known"):
        forecaster.update(table(stamps("ns")(["1700-01-01"])))


def test_reasons_that_are_collected_count_rows_in_their_series(known):
    kind, forecaster = known
    days, _ = next(days_with_a_far_one(kind, N_KNOWN))
    usual = table(KINDS[kind](FIRST + N_KNOWN + np.arange(4)), "b")
    found = forecaster.predict(pd.concat((usual, table(KINDS[kind](days)))), n_paths=2, errors="collect")
    assert found.errors["unique_id"].tolist() == ["a"]
    assert re.search(r"\brow [01] .*\(rows counted in this series\)$", found.errors["error"][0])


@pytest.mark.parametrize("freq", ["D", "MS", "W-SUN"])
@pytest.mark.parametrize("first", ["1690-01-07", "2024-01-07"])
def test_far_rows_of_a_stream_are_refused(tmp_path, freq, first):
    times = pd.date_range(first, periods=N_KNOWN, freq=freq, unit="ns")
    make(freq=freq).fit(table(times), progress=False).save(tmp_path / "model")
    stepper = Stepper(tmp_path / "model")
    before = {"a": stepper.begin("a"), "new": None}
    for far in ("9999-12-31", "2262-04-11", "1677-09-22", "0001-01-01"):
        for name in ("a", "new"):
            state, (answer,) = stepper.step(None, [{"unique_id": name, "ds": far, "y": 1.0}])
            beginning = name == "new" and "error" not in answer and far[:4] == "1677"  # in reach, and the first
            assert beginning or answer["error"]["column"] == "ds", answer
            assert beginning or state == before[name]


def test_the_change_of_the_clocks_is_told_from_the_end_of_all_times():
    times = pd.date_range("2024-03-01 02:30", periods=30, freq="D", tz="Europe/Berlin")
    with pytest.raises(TableError, match=r"row 29 .* meets the change of the clocks in Europe/Berlin"):
        make(freq="D").fit(table(times), progress=False)
    in_utc = table(times.tz_convert("UTC"))
    assert len(make(freq="D").fit(in_utc, progress=False).predict()) == 4


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model, a table with a far row, and a few rows after it of which one is far."""
    folder = tmp_path_factory.mktemp("files")
    make(freq="D").fit(table(pd.date_range(FIRST, periods=N_KNOWN)), progress=False).save(folder / "model")
    days = np.append(FIRST + np.arange(N_KNOWN + 2), FAR[0])
    table(days.astype(str)).to_csv(folder / "whole.csv", index=False)
    table(days[N_KNOWN:].astype(str)).to_csv(folder / "new.csv", index=False)
    return folder


@pytest.mark.parametrize(
    ("command", "row"),
    [
        (("fit", "whole.csv", *QUICK, "--out", "out"), 42),
        (("fit", "whole.csv", *QUICK, "--freq", "D", "--out", "out"), 42),
        (("predict", "model", "--data", "whole.csv"), 42),
        (("predict", "model", "--new", "new.csv", "--save"), 2),
        (("score", "model", "--data", "whole.csv"), 42),
        (("score", "model", "--new", "new.csv", "--save"), 2),
        (("backtest", "model", "--data", "whole.csv"), 42),
        (("report", "model", "--data", "whole.csv", "--out", "out.html"), 42),
    ],
    ids=lambda one: " ".join(one[:3]) if isinstance(one, tuple) else None,
)
def test_commands_name_a_far_row(capsys, files, monkeypatch, command, row):
    monkeypatch.chdir(files)
    message = fails(capsys, 1, *command)
    assert f"row {row} (9999-12-31" in message
    assert "new.csv" in message or "whole.csv" in message
    assert not (files / "out").exists()


def test_future_inputs_far_ahead_are_named():
    rows = series("a", np.ones(N_KNOWN), x=1.0)
    known = make(future_inputs=["x"]).fit(rows, progress=False)
    future = series("a", np.ones(5), start=N_KNOWN, x=1.0)
    future.loc[4, "ds"] = 10**9
    with pytest.raises(TableError, match=r"row 4 \(1000000000\) is 999999957 steps"):
        known.predict(future=future)
