"""One new row of each of many series: the numbers of the way that goes series by series, to the bit."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.followed import assert_same_following
from helpers.forecaster_tables import SHORT, TINY, series, walks

from smc_transformer.forecaster import Forecaster, facade
from smc_transformer.forecaster import tick as tick_module
from smc_transformer.forecaster.roster import Roster
from smc_transformer.forecaster.table import TableError
from smc_transformer.forecaster.tick import tick
from smc_transformer.kernels.library import disabled

STEPS = 4
COUNTS = {"config": {**TINY, "observation": "negative_binomial"}}


def make(**options):
    defaults = {
        "input_size": 10,
        "horizon": 4,
        "training": SHORT,
        "n_particles": 13,
        "config": TINY,
        "scaling": "local",
    }
    return Forecaster(**{**defaults, **options})


def numbers(**options):
    """Whole-number times, series of different lengths and values that were missing before."""
    table = walks(40, 34, 40, 37, 29)
    table.loc[[12, 60], "y"] = np.nan
    return make(freq=1, **options), table


def zoned():
    """With an input that is known ahead, a past input and calendar features, over a change of the clocks."""
    _, table = numbers()
    start = pd.Timestamp("2024-03-01", tz="Europe/Paris")
    table["ds"] = [start + pd.DateOffset(days=day) for day in table["ds"]]
    table["z"], table["x"] = np.cos(np.arange(len(table))), np.arange(len(table)) % 3.0
    table.loc[[3, 61, 180 - STEPS], "z"] = np.nan
    return make(freq="D", past_inputs=["z"], future_inputs=["x"], calendar=["weekday"]), table


def two_targets():
    """Two targets by the hour, of which one may be missing alone."""
    _, table = numbers()
    table["ds"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(table["ds"], unit="h")
    table["w"] = np.sin(np.arange(len(table))) + 3
    table.loc[[3, 61, 180 - STEPS], "w"] = np.nan
    return make(freq="h", targets=["y", "w"], seasons=[4]), table


def months():
    """Steps of unequal length; the table has dates as text."""
    _, table = numbers()
    dates = pd.date_range("2010-01-01", periods=80, freq="MS")
    return make(freq="MS"), table.assign(ds=[str(dates[place].date()) for place in table["ds"]])


def counts():
    forecaster, table = numbers(**COUNTS)
    return forecaster, table.assign(y=table["y"].abs().round())


CASES = {"numbers": numbers, "zoned": zoned, "two targets": two_targets, "months": months, "counts": counts}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A forecaster, and the rows that come next, a table for each step."""
    forecaster, table = CASES[request.param]()
    place = table.groupby("unique_id", sort=False).cumcount(ascending=False)
    forecaster.fit(table[place >= STEPS], progress=False)
    new = [table[place == STEPS - 1 - step] for step in range(STEPS)]
    new[1] = new[1].assign(y=new[1]["y"].where(new[1]["unique_id"] != "c"))  # a gap
    new[2] = new[2][new[2]["unique_id"] != "b"].iloc[::-1]
    return forecaster, [*new[:3], new[3][new[3]["unique_id"] != "b"]]


def copies(forecaster, folder):
    forecaster.save(folder)
    return Forecaster.load(folder), Forecaster.load(folder)


def both_ways(quick, slow, rows, monkeypatch, **options):
    """An update by the tick, if that can do it, and one without it; whether it could."""
    taken = []

    def noting(*arguments):
        taken.append(tick(*arguments))
        return taken[-1]

    monkeypatch.setattr(facade, "tick", noting)
    found = quick.update(rows, **options)
    monkeypatch.setattr(facade, "tick", lambda *_: None)
    pd.testing.assert_frame_equal(found, slow.update(rows, **options), check_exact=True)
    monkeypatch.setattr(facade, "tick", tick)
    return taken[0] is not None


@pytest.mark.parametrize("n_series", [1, 3])
def test_a_row_right_after_a_fit_is_one_after_loading(tmp_path, n_series):
    """Series of one length are filtered together, and the filter leaves views of what it made for all steps."""
    table = walks(*[30] * 3)
    forecaster = make(freq=1).fit(table, progress=False)
    loaded, _ = copies(forecaster, tmp_path / "model")
    rows = pd.DataFrame({"unique_id": ["b", "c", "a"][:n_series], "ds": 30, "y": 11.5})
    pd.testing.assert_frame_equal(forecaster.update(rows), loaded.update(rows), check_exact=True)
    assert_same_following(forecaster, loaded)


@pytest.mark.parametrize("distrust", [None, 60])
@pytest.mark.parametrize("at_once", [2, 256])
def test_numbers_are_those_of_series_by_series(case, tmp_path, monkeypatch, distrust, at_once):
    forecaster, new = case
    monkeypatch.setattr(tick_module, "SERIES_AT_ONCE", at_once)
    quick, slow = copies(forecaster, tmp_path / "model")
    for rows in new:
        assert both_ways(quick, slow, rows, monkeypatch, distrust=distrust)
    roster = quick.fitted.following.series
    assert isinstance(roster, Roster)
    assert list({**roster}) == list(roster.keys()) == quick.series  # a mapping as any other
    assert not isinstance(slow.fitted.following.series, Roster)
    assert_same_following(quick, slow)
    quick.save(tmp_path / "quick")
    assert_same_following(Forecaster.load(tmp_path / "quick"), slow)
    chosen = {"series": ["d", "a"], "n_paths": 20, **future(quick)}
    pd.testing.assert_frame_equal(quick.predict(**chosen), slow.predict(**chosen), check_exact=True)


def test_other_rows_beside_them(case, tmp_path, monkeypatch):
    """A new series, several rows of one, and rows after absent ones: in one table with rows that are the next."""
    forecaster, new = case
    quick, slow = copies(forecaster, tmp_path / "model")
    begun, twice = new[0][:1].assign(unique_id="new"), new[2]["unique_id"].isin(["a", "d"])
    tables = [pd.concat((begun, new[0])), pd.concat((new[1], new[2][twice])), new[3]]
    for rows in tables[: 2 if forecaster.settings.future_inputs else 3]:  # which may not be absent
        assert both_ways(quick, slow, rows, monkeypatch, distrust=80)
        assert_same_following(quick, slow)


def test_a_wrong_row_beside_them(case, tmp_path, monkeypatch):
    forecaster, new = case
    quick, slow = copies(forecaster, tmp_path / "model")
    for one in (quick, slow):
        one.update(new[0])
    reasons, table = [], pd.concat((new[1][1:], new[0][:1]))
    for one, way in ((quick, tick), (slow, lambda *_: None)):
        monkeypatch.setattr(facade, "tick", way)
        with pytest.raises(TableError) as caught:
            one.update(table)
        reasons.append(str(caught.value))
    assert reasons[0] == reasons[1]
    assert "is not after the last row known" in reasons[0]
    assert_same_following(quick, slow)


def test_one_series_alone_is_as_in_the_panel(case, tmp_path):
    forecaster, new = case
    panel, alone = copies(forecaster, tmp_path / "model")
    for rows in new:
        panel.update(rows)
        for name in rows["unique_id"]:
            alone.update(rows[rows["unique_id"] == name])
    assert_same_following(panel, alone)


def test_what_is_no_tick_goes_the_other_way(case, tmp_path):
    forecaster, new = case
    own, _ = copies(forecaster, tmp_path / "model")
    rows = new[0]
    for table in (rows.assign(unique_id="new name"), pd.concat((rows, rows))):
        assert tick(own.fitted, table, [80], None) is None
    assert tick(own.fitted, new[1], [80], None) is None  # a row has been left out
    before = own.predict(series=["a", "d"], **future(own))
    with pytest.raises(TableError):
        own.update(rows.assign(y=1e200))
    pd.testing.assert_frame_equal(own.predict(series=["a", "d"], **future(own)), before)
    own.update(pd.concat(new[:2]))
    with pytest.raises(TableError, match="not after the last row known"):
        own.update(rows)


def future(forecaster):
    if not forecaster.settings.future_inputs:
        return {}
    parts = [
        pd.DataFrame({"unique_id": name, "ds": pd.date_range(time, periods=7, freq="D")[1:], "x": 1.0})
        for name, time in forecaster.fitted.following.last_times().items()
    ]
    return {"future": pd.concat(parts)}


def test_an_error_on_the_way_leaves_everything_as_it_was(case, tmp_path, monkeypatch):
    """The view takes the row last, when keys and values have been written already."""
    forecaster, new = case
    own, again = copies(forecaster, tmp_path / "model")
    stepwise = {"distrust": 99.9}  # without it, a row of one series is taken in one call, where there is no way
    own.update(new[0], **stepwise)
    before = own.predict(n_paths=20, **future(own))
    with monkeypatch.context() as patch:
        patch.setattr(type(own.fitted.panel.view.bank), "observe", fail)
        with pytest.raises(MemoryError):
            own.update(new[1], **stepwise)
    pd.testing.assert_frame_equal(own.predict(n_paths=20, **future(own)), before, check_exact=True)
    again.update(new[0], **stepwise)
    pd.testing.assert_frame_equal(own.update(new[1], **stepwise), again.update(new[1], **stepwise), check_exact=True)
    pd.testing.assert_frame_equal(own.predict(**future(own)), again.predict(**future(again)), check_exact=True)


def fail(*_):
    raise MemoryError


def test_series_that_come_one_by_one(monkeypatch):
    """Memory grows with room to spare; the rows that are vacant belong to nobody."""
    forecaster, table = numbers()
    forecaster.fit(table, progress=False)
    fleet = forecaster.fitted.following.fleet
    forecaster.update(next_rows(forecaster))
    for number in range(9):
        forecaster.update(series(f"new {number}", np.arange(12) % 4 + number))
    assert forecaster.series == [*"abcde", *(f"new {number}" for number in range(9))]
    assert len(forecaster.update(next_rows(forecaster))) == 14
    held = [fleet.lend([name]) for name in forecaster.series]
    assert len({(state.keys.data_ptr(), int(state.held)) for state in held}) == 14
    positions = {int(state.position) for state in held[5:]}
    assert positions == {12}  # twelve rows and one more, the first of which is no step


def next_rows(forecaster):
    last = forecaster.fitted.following.last_times()
    return pd.DataFrame({"unique_id": list(last), "ds": [time + 1 for time in last.values()], "y": 1.0})


def test_without_kernels(tmp_path, monkeypatch):
    forecaster, table = numbers()
    with disabled():
        forecaster.fit(table, progress=False)
        quick, slow = copies(forecaster, tmp_path / "model")
        assert both_ways(quick, slow, next_rows(quick), monkeypatch)
        assert_same_following(quick, slow)


def test_threads_are_given_back(monkeypatch):
    forecaster, table = numbers()
    forecaster.fit(table, progress=False)
    monkeypatch.setattr(tick_module, "SERIES_AT_ONCE", 1)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        forecaster.update(next_rows(forecaster))
        with ThreadPoolExecutor(1) as later:
            assert (torch.get_num_threads(), later.submit(torch.get_num_threads).result()) == (2, 2)
    finally:
        torch.set_num_threads(before)
