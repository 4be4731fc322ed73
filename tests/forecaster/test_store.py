"""The store of accepted rows: the same promises in SQLite and in PostgreSQL."""

import contextlib
import json
import os
import shutil

import pandas as pd
import pytest
from helpers.forecaster_tables import make, walks
from helpers.postgresql import server

from smc_transformer.forecaster import Forecaster, SavedForecasterError
from smc_transformer.forecaster.folder.access import read_folder
from smc_transformer.forecaster.folder.lock import LockedError
from smc_transformer.forecaster.folder.recorded import Recorded
from smc_transformer.forecaster.folder.store.accepted import Accepted, Store, time_text
from smc_transformer.forecaster.folder.store.databases import PostgreSQL, SQLite, StoreError
from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.rows import RowError
from smc_transformer.support.checksums import sealed


@pytest.fixture(scope="module")
def postgresql():
    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    """Where the store is: in the folder, or in an empty schema of a server."""
    if request.param == "sqlite":
        yield None
        return
    base = request.getfixturevalue("postgresql")
    schema = f"s{abs(hash(request.node.name)) % 10**8}"
    admin = PostgreSQL(base, writing=False)
    admin.run(f"CREATE SCHEMA {schema}")
    yield f"{base}&options=-csearch_path%3D{schema}"
    admin.run(f"DROP SCHEMA {schema} CASCADE")
    admin.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    make().fit(walks(40, 40), progress=False).save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def database(folder, url):
    return SQLite(folder / "x.sqlite", writing=True) if url is None else PostgreSQL(url, writing=True)


def opened(folder, url):
    return Store(database(folder, url), "fit", Recorded())


def edit(folder, url, **changes):
    """Other numbers in the document of a store that nobody has open, with a checksum that fits."""
    with contextlib.closing(database(folder, url)) as there:
        document = json.loads(there.run("SELECT document FROM stream")[0][0])
        text = json.dumps(sealed({**document, **changes}))
        with there.transaction():
            there.run("UPDATE stream SET document = ?", (text,))


def row(name, time, value=1.0):
    return Accepted(name, time, {"unique_id": name, "ds": time, "y": value}, {"pit": value})


def observation(name, time, value=0.5):
    return {"unique_id": name, "ds": time, "y": value}


def test_rows_come_back_as_they_were_written(tmp_path, url):
    store = opened(tmp_path, url)
    names = ["a", 7, "7", "quoted \"' ?%s", "nul \x00 and é 漢 \ud800", ""]
    store.append([[row(name, 1) for name in names], [row("a", 2, None)]], lines=8, answers=[{"line": 8}])
    store.close()
    store = opened(tmp_path, url)
    for name in names:
        assert store.find(name, 1) == row(name, 1)._replace(time="1")
    assert store.find("a", 3) is None
    assert store.find("b", 1) is None
    assert [one.cells["ds"] for one in store.last("a", 5)] == [1, 2]
    assert [one.cells["ds"] for one in store.last("a", 1)] == [2]
    recorded = store.recorded()
    assert [[cells["unique_id"] for cells in one.rows] for one in recorded.rounds] == [names, ["a"]]
    assert recorded.seen == (8, ({"line": 8},))
    store.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path, url):
    store = opened(tmp_path, url)
    store.append([[row("a", 1)]], lines=1)
    with pytest.raises(StoreError):
        store.append([[row("b", 1)], [row("a", 1)]], lines=2)  # the second is there already
    assert store.find("b", 1) is None
    assert store.seen.n_lines == 1
    store.append([[row("b", 1)]], lines=1)
    assert store.recorded().seen.n_lines == 2
    store.close()


def test_rows_that_states_hold_are_not_replayed_and_the_last_of_each_series_are_kept(tmp_path, url):
    store = opened(tmp_path, url)
    for time in range(10):
        store.append([[row("a", time), row("b", time)]], lines=2)
    assert store.n_pending == 20
    store.mark_saved(keep=3)
    assert (store.n_pending, store.recorded().rounds) == (0, ())
    assert [one.cells["ds"] for one in store.last("a", 100)] == [7, 8, 9]
    store.append([[row("a", 10)]], lines=1)
    store.close()
    store = opened(tmp_path, url)
    store.mark_saved(keep=3)
    assert [one.cells["ds"] for one in store.last("a", 100)] == [8, 9, 10]
    assert [one.cells["ds"] for one in store.last("b", 100)] == [7, 8, 9]
    store.close()


def test_rows_of_states_that_were_saved_in_turn(tmp_path, url):
    store = opened(tmp_path, url)
    for time in range(6):
        store.append([[row("a", time), row("b", time)]], lines=2)
    assert store.fresh(6, most=1) == ["a"]
    assert store.fresh(7) == []
    store.put_states({"a": b"state of a"}, keep=2)
    store.append([[row("a", 6)], [row("b", 6)]], lines=2)
    store.close()
    store = opened(tmp_path, url)
    assert store.fresh() == ["b", "a"]  # b has waited longer
    assert [len(one.rows) for one in store.recorded().rounds] == [2, 1, 1, 1, 1, 1, 1]
    assert store.state("a")[1:] == (6, b"state of a")
    store.put_states({"b": b"state of b"})
    assert [[cells["ds"] for cells in one.rows] for one in store.recorded().rounds] == [[6]]
    store.put_states({"a": b"later"})
    assert (store.recorded().rounds, store.n_pending) == ((), 0)
    store.close()


def test_a_state_that_is_gone_is_missed(tmp_path, url):
    """Its rows would be replayed on top of an older state, some of them forgotten meanwhile."""
    store = opened(tmp_path, url)
    for time in range(6):
        store.append([[row("a", time), row("b", time)]], lines=2)
    store.put_states({"a": b"state"}, keep=2)
    store.close()
    with contextlib.closing(database(tmp_path, url)) as there, there.transaction():
        there.run("DELETE FROM states")
    store = opened(tmp_path, url)
    with pytest.raises(StoreError, match="of 6 rows 8 are there"):
        store.recorded()
    store.close()


def test_a_store_of_the_first_version_is_read(tmp_path, url):
    """It counted all rows since the oldest state, also those that states hold."""
    store = opened(tmp_path, url)
    for time in range(6):
        store.append([[row("a", time), row("b", time)]], lines=2)
    store.put_states({"a": b"state"})
    store.close()
    edit(tmp_path, url, version=1, pending=12)
    store = opened(tmp_path, url)
    assert sum(len(one.rows) for one in store.recorded().rounds) == 6
    store.append([[row("a", 6)]], lines=1)
    assert sum(len(one.rows) for one in store.recorded().rounds) == 7
    store.close()
    edit(tmp_path, url, version=1, pending=12)
    refused = pytest.raises(StoreError, match="of 12 rows 13 are there")
    with contextlib.closing(database(tmp_path, url)) as there, refused:
        Store(there, "fit")


def test_a_store_of_another_fit_is_refused(tmp_path, url):
    opened(tmp_path, url).close()
    database = SQLite(tmp_path / "x.sqlite", writing=True) if url is None else PostgreSQL(url, writing=True)
    with pytest.raises(StoreError, match="another fit"):
        Store(database, "other", Recorded())
    database.close()


def test_times_are_the_same_moment_in_any_zone_and_unit():
    moment = pd.Timestamp("2024-03-31 01:00", tz="UTC")
    texts = {time_text(one) for one in (moment, moment.as_unit("ns"), moment.tz_convert("Europe/Paris").as_unit("s"))}
    assert len(texts) == 1
    # Both hours of a night in which clocks go back.
    night = pd.date_range("2024-10-27 00:00", periods=3, freq="h", tz="UTC").tz_convert("Europe/Paris")
    assert len({time_text(one) for one in night}) == 3


def test_loading_finds_the_rows_wherever_they_are(folder, url):
    service = Service(folder, store=url, n_paths=5)
    found = service.accept([observation("b", 40), observation("a", 40), observation("b", 41), observation("a", 41)])
    assert [one.answer["unique_id"] for one in found] == ["b", "a", "b", "a"]
    service.close()
    loaded = Forecaster.load(folder)
    pd.testing.assert_frame_equal(loaded.predict(), service.forecaster.predict())
    again = Service(folder, n_paths=5)  # the folder knows where
    assert again.n_taken == 4
    assert again.accept([observation("a", 40)]) == [found[1]._replace(is_new=False)]
    assert [row.answer for row in again.accepted.newest(3)] == [one.answer for one in found[1:]]
    again.save()
    again.close()
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), loaded.predict())


def test_a_database_brings_back_all_rows_without_the_folder(saved, folder, tmp_path, request):
    url = request.getfixturevalue("postgresql") + "&options=-csearch_path%3Delsewhere"
    admin = PostgreSQL(request.getfixturevalue("postgresql"), writing=False)
    admin.run("CREATE SCHEMA elsewhere")
    admin.close()
    service = Service(folder, store=url, n_paths=5)
    service.accept([observation("a", 40), observation("b", 40), observation("a", 41)])
    service.save()  # states and rows are in the database, none in the folder
    service.accept([observation("b", 41)])
    service.close()
    shutil.rmtree(folder)
    other = shutil.copytree(saved, tmp_path / "other")
    again = Service(other, store=url, n_paths=5)
    assert again.n_taken == 4
    pd.testing.assert_frame_equal(again.forecaster.predict(), service.forecaster.predict())
    again.close()
    pd.testing.assert_frame_equal(Forecaster.load(other).predict(), service.forecaster.predict())


def test_refused_rows_do_not_touch_the_others(folder, url):
    service = Service(folder, store=url, n_paths=5)
    given = [
        observation("a", 40),
        observation("", 40),
        observation("b", 40, 1e300),
        observation("a", 40),
        observation("a", 40, 0.7),
        [1],
        observation("b", 39),
        observation("b", 40),
        {"unique_id": "b", "ds": 41},
    ]
    found = service.accept(given)
    kinds = [one.kind if isinstance(one, RowError) else "accepted" for one in found]
    assert kinds == [
        "accepted",
        "unknown series",
        "invalid",
        "accepted",
        "conflict",
        "invalid",
        "past",
        "accepted",
        "invalid",
    ]
    assert [one.column for one in found if isinstance(one, RowError)] == ["unique_id", "y", "y", None, "ds", "y"]
    assert (found[0].is_new, found[3]) == (True, found[0]._replace(is_new=False))
    assert service.n_taken == 2  # rows that were accepted
    service.close()
    assert [len(one.rows) for one in read_folder(folder)[1].rounds] == [2]


def test_a_store_that_fails_does_not_leave_the_forecaster_ahead_of_it(folder, url, monkeypatch):
    service = Service(folder, store=url, n_paths=5)
    before = service.forecaster.predict()

    def fails(*arguments, **options):
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "append", fails)
    with pytest.raises(StoreError):
        service.accept([observation("a", 40)])
    monkeypatch.undo()
    service.reopen()
    pd.testing.assert_frame_equal(service.forecaster.predict(), before)
    assert service.accept([observation("a", 40)])[0].is_new
    service.close()


def test_one_writer_at_a_time(saved, folder, url, tmp_path):
    service = Service(folder, store=url, n_paths=5)
    with pytest.raises(LockedError, match="another process is writing"):
        Service(folder, n_paths=5)
    if url is not None:  # also not from another machine, with a folder of its own
        other = shutil.copytree(saved, tmp_path / "other")
        with pytest.raises(LockedError, match="another process is writing"):
            Service(other, store=url, n_paths=5)
    service.close()
    Service(folder, n_paths=5).close()


def test_addresses_that_cannot_be_are_refused(folder):
    for url, word in (
        ("postgresql://user:secret@host/db", "no password"),
        ("mysql://host/db", "got mysql"),
        ("postgresql://[host/db", "cannot be read"),
    ):
        with pytest.raises(StoreError, match=word) as error:
            Service(folder, store=url)
        assert "secret" not in str(error.value)
    (folder / "store.json").write_text('{"format": "smc-transformer-store", "url": 7}')
    with pytest.raises(SavedForecasterError, match=r"store\.json is damaged"):
        Forecaster.load(folder)


def test_a_stream_is_not_moved_to_another_database_unseen(folder, postgresql):
    Service(folder, n_paths=5).close()
    with pytest.raises(StoreError, match=r"are in stream\.sqlite already"):
        Service(folder, store=postgresql)


def test_a_read_only_folder_can_be_loaded(folder):
    service = Service(folder, n_paths=5)
    service.accept([observation("a", 40)])
    service.close()
    expected = Forecaster.load(folder).predict()
    database = SQLite(folder / "stream.sqlite", writing=False)
    with pytest.raises(StoreError, match="readonly"):
        database.run("DELETE FROM accepted")
    database.close()
    os.chmod(folder, 0o555)
    try:
        pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), expected)
    finally:
        os.chmod(folder, 0o755)


def test_a_jump_ahead_is_missing_rows_in_the_replay_too(folder, url):
    service = Service(folder, store=url, n_paths=5)
    assert service.accept([observation("a", 45)])[0].is_new
    service.close()
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), service.forecaster.predict())
    assert json.loads((folder / "config.json").read_text())["fit"]
