"""Series that fall silent leave the memory, and come back to the bit."""

import argparse
import contextlib
import shutil
import sqlite3

import pytest
from helpers.forecaster_tables import make, walks

from smc_transformer.cli.options import duration
from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.folder.packed import pack_series
from smc_transformer.forecaster.folder.store.databases import StoreError
from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.retiring import AT_ONCE
from smc_transformer.forecaster.rows import RowError


@pytest.fixture(scope="module", params=["local", "standard"])
def saved(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    make(scaling=request.param).fit(walks(40, 40, 40), progress=False).save(folder)
    return folder


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def serving(saved, folder, clock, after=60.0):
    return Service(shutil.copytree(saved, folder), n_paths=5, retire_after=after, clock=clock)


def row(name, time, value=0.5):
    return {"unique_id": name, "ds": time, "y": value}


def rows_held(service):
    """Of the particles, those that are vacant included."""
    following = service.forecaster.fitted.following
    held = {id(state): state for state, _ in map(following.fleet.where, following.series)}
    return sum(map(len, held.values()))


def states(folder):
    fitted = Forecaster.load(folder).fitted
    return {name: pack_series(fitted, "", name) for name in sorted(fitted.following.series)}


def test_a_silent_series_leaves_and_comes_back_to_the_bit(saved, tmp_path, clock):
    service, other = serving(saved, tmp_path / "model", clock), serving(saved, tmp_path / "other", clock, None)
    were_away = set()
    for time, names in enumerate(["abc", "b", "bc", "ab", "c", "cab", "a", "a", "ba"], start=40):
        clock.now += 40
        for one in (service, other):
            last = one.last_times()
            given = [row(name, last[name] + 1, 0.1 * time) for name in names]
            one.found = one.accept(given)
        assert service.found == other.found
        while service.retired.retire():
            pass
        assert not other.retired.retire()
        assert set(service.retired.away) & set(names) == set()
        assert service.n_series == 3
        assert service.last_times() == other.last_times()
        were_away |= set(service.retired.away)
    assert were_away == {"a", "b", "c"}
    service.close(), other.close()
    assert states(tmp_path / "model") == states(tmp_path / "other")


def test_memory_is_given_back(saved, tmp_path, clock):
    service = serving(saved, tmp_path / "model", clock)
    assert rows_held(service) == 3
    clock.now = 61
    assert service.retired.retire() == 3
    assert rows_held(service) == len(service.forecaster.fitted.following.series) == 0
    assert service.retired.away == dict.fromkeys("abc", 39)
    assert service.accept([row("b", 40), row("b", 41)])[1].is_new
    assert service.forecaster.series == ["b"]
    assert list(service.retired.away) == ["a", "c"]
    service.close()


def test_at_most_some_retire_together_those_first_that_are_silent_longest(saved, tmp_path, clock):
    service = serving(saved, tmp_path / "model", clock)
    assert service.retired.due() == []
    clock.now = 30
    service.accept([row("a", 40)])
    clock.now = 61
    assert service.retired.due() == ["b", "c"]
    service.retired.hear(f"other {number}" for number in range(AT_ONCE))
    clock.now = 200
    due = service.retired.due()
    assert (due[:3], len(due)) == (["b", "c", "a"], AT_ONCE)
    service.close()


def test_what_is_refused_or_asked_of_a_series_that_is_away(saved, tmp_path, clock):
    service = serving(saved, tmp_path / "model", clock)
    first = service.accept([row("a", 40)])[0]
    clock.now = 61
    service.retired.retire()
    past, unknown = service.accept([row("a", 39), row(" z", 40)])
    assert isinstance(past, RowError)
    assert (past.kind, unknown.kind) == ("past", "unknown series")
    clock.now = 200
    service.retired.retire()
    assert service.accept([row("a", 40)]) == [first._replace(is_new=False)]
    clock.now = 400
    service.retired.retire()
    assert service.find_series("c", fetching=False) in service.retired.away
    assert service.find_series("c") in service.forecaster.series
    service.close()


def test_a_restart_and_readers_have_all_series(saved, tmp_path, clock):
    service = serving(saved, tmp_path / "model", clock)
    service.accept([row("a", 40)])
    clock.now = 61
    service.retired.retire()
    assert Forecaster.load(tmp_path / "model").fitted.following.last_times() == {"a": 40, "b": 39, "c": 39}
    service.accept([row("b", 40)])
    service.reopen()
    assert (service.n_series, service.retired.away) == (3, {})
    service.close()


def test_a_state_that_is_missing_is_said_and_nothing_taken(saved, tmp_path, clock):
    service = serving(saved, tmp_path / "model", clock)
    clock.now = 61
    service.retired.retire()
    with contextlib.closing(sqlite3.connect(tmp_path / "model" / "stream.sqlite")) as connection, connection:
        connection.execute("DELETE FROM states")
    with pytest.raises(StoreError, match=r'the state of series "a" is missing'):
        service.accept([row("a", 40)])
    service.close()


def test_a_disk_that_is_full_keeps_them_in_memory(saved, tmp_path, clock, monkeypatch):
    service = serving(saved, tmp_path / "model", clock)
    clock.now = 61

    def full(*arguments):
        raise StoreError("the disk is full")

    monkeypatch.setattr(service.accepted, "put_states", full)
    with pytest.raises(StoreError, match="full"):
        service.retired.retire()
    assert (len(service.forecaster.series), service.retired.away) == (3, {})
    service.close()


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30min", 1800), ("0.5h", 1800), ("7d", 604800)])
def test_durations(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "0s", "-1h", "1m", "infd", "nans", "1 week"])
def test_what_is_no_duration(text):
    with pytest.raises(argparse.ArgumentTypeError, match="12h or 7d"):
        duration(text)
