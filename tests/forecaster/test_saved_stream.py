"""A saved forecaster whose stream has answered lines: loading replays them, and no save loses them."""

import json
import shutil

import pandas as pd
import pytest
from helpers.forecaster_tables import make, series, walks

from smc_transformer.forecaster import Forecaster, SavedForecasterError
from smc_transformer.forecaster.folder import access, files
from smc_transformer.forecaster.folder.access import read_folder
from smc_transformer.forecaster.folder.store.accepted import Store
from smc_transformer.forecaster.live import Service
from smc_transformer.support.checksums import sealed


@pytest.fixture(scope="module")
def fitted():
    return make().fit(walks(60), progress=False)


@pytest.fixture
def folder(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def line(time, value=0.1):
    return json.dumps({"unique_id": "a", "ds": time, "y": value}).encode()


def contents(folder):
    """All files but the one in which the readers of a database count themselves."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def killed_stream(folder, times, distrust=None):
    """What a stream knew that was killed after it had answered these lines."""
    service = Service(folder, n_paths=5, distrust=distrust)
    for time in times:
        assert "error" not in service.take(line(time), service.n_taken + 1)
    service.close()  # without saving, as after a kill
    return service.forecaster


@pytest.mark.parametrize("distrust", [None, 50])
def test_loading_replays_the_lines_of_a_killed_stream(folder, distrust):
    expected = killed_stream(folder, (60, 61, 63), distrust)
    loaded = Forecaster.load(folder)
    assert loaded.fitted.following.series["a"].last_time == 63
    pd.testing.assert_frame_equal(loaded.predict(), expected.predict())


def test_load_update_save_keeps_the_lines_of_a_killed_stream(folder):
    expected = killed_stream(folder, (60, 61))
    loaded = Forecaster.load(folder)
    for forecaster in (expected, loaded):
        forecaster.update(series("a", [0.3], start=62))
    loaded.save(folder)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), expected.predict())
    # The stream goes on counting where it stopped, with no row that is replayed twice.
    assert read_folder(folder)[1].rounds == ()
    service = Service(folder, n_paths=5)
    assert service.n_taken == 2
    assert "not after the last one, 62" in service.take(line(62), 3)["error"]  # it came by another way
    service.close()


def test_a_kill_between_the_state_and_its_note_in_the_store_replays_no_row_twice(folder, monkeypatch):
    killed_stream(folder, (60, 61))
    loaded = Forecaster.load(folder)
    loaded.update(series("a", [0.3], start=62))

    def killed(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "mark_saved", killed)
    with pytest.raises(KeyboardInterrupt):
        loaded.save(folder)
    monkeypatch.undo()
    assert len(read_folder(folder)[1].rounds) == 2
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), loaded.predict())


def test_a_forecaster_beside_a_running_stream_is_loaded_but_not_saved(folder):
    service = Service(folder, n_paths=5)
    service.take(line(60), 1)
    loaded = Forecaster.load(folder)
    pd.testing.assert_frame_equal(loaded.predict(), service.forecaster.predict())
    before = contents(folder)
    loaded.update(series("a", [0.3], start=61))
    another = make(seed=1).fit(walks(60), progress=False)
    for forecaster in (loaded, another):
        with pytest.raises(SavedForecasterError, match="another process is writing to"):
            forecaster.save(folder)
    assert contents(folder) == before
    service.close()


def test_a_stream_that_saves_while_a_forecaster_is_loaded_hides_no_row(folder, monkeypatch):
    service = Service(folder, n_paths=5)
    for number, time in enumerate((60, 61), start=1):
        service.take(line(time), number)
    load_fitted = files.load_fitted

    def load_after_a_save(path):
        service.save()
        return load_fitted(path)

    monkeypatch.setattr(files, "load_fitted", load_after_a_save)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), service.forecaster.predict())
    service.close()


@pytest.mark.parametrize("how", ["killed", "at the end of its input"])
def test_a_save_does_not_undo_lines_answered_since_the_load(folder, how):
    loaded = Forecaster.load(folder)
    if how == "killed":
        expected = killed_stream(folder, (60, 61))
    else:
        service = Service(folder, n_paths=5)
        assert len(list(service.answers([[line(60)], [line(61)]]))) == 2
        service.close()
        expected = service.forecaster
    loaded.update(series("a", [0.3, 0.3, 0.3], start=60))
    with pytest.raises(SavedForecasterError, match=r"2 lines.*has seen 0.*load it again"):
        loaded.save(folder)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), expected.predict())


def test_a_forecaster_that_was_saved_goes_on_being_saved_there(fitted, folder, tmp_path):
    forecaster = Forecaster.load(folder)
    for start in (60, 61):
        forecaster.update(series("a", [0.3], start=start))
        forecaster.save(tmp_path / "new")
    assert Forecaster.load(tmp_path / "new").fitted.following.series["a"].last_time == 61


def test_a_new_fit_replaces_the_stream_of_the_one_before_even_of_its_twin(folder):
    killed_stream(folder, (60, 61))
    twin = make().fit(walks(60), progress=False)
    twin.save(folder)
    assert not (folder / "stream.sqlite").exists()
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), twin.predict())


JOURNAL_HEAD = {"format": "smc-transformer-stream", "version": 2, "distrust": None, "lines": 7, "answer": None}


def write_journal(folder, *entries, **head):
    """A journal as release 0.2 wrote it."""
    fit = json.loads((folder / "config.json").read_text())["fit"]
    documents = ({**JOURNAL_HEAD, "fit": fit, **head}, *entries)
    (folder / "stream.jsonl").write_text("".join(json.dumps(sealed(one)) + "\n" for one in documents))


def test_a_damaged_journal_is_refused_by_load_and_save(folder):
    write_journal(folder, {"line": 8, "row": {"unique_id": "a", "ds": 60, "y": 0.1}, "answer": {"line": 8}})
    loaded = Forecaster.load(folder)
    journal = folder / "stream.jsonl"
    good = journal.read_text()
    for wrong in (good.replace('"ds": 60', '"ds": "soon"'), good.replace('"fit": "', '"fit": "x'), "{}\n", ""):
        journal.write_text(wrong)
        with pytest.raises(SavedForecasterError, match=r"stream\.jsonl (is damaged|belongs to another fit)"):
            Forecaster.load(folder)
    with pytest.raises(SavedForecasterError, match="damaged"):
        loaded.save(folder)


@pytest.mark.parametrize("distrust", [None, 50])
def test_a_stream_goes_on_from_a_journal_of_0_2(folder, distrust, monkeypatch):
    other = shutil.copytree(folder, folder.parent / "other")
    entry = {"line": 8, "row": {"unique_id": "a", "ds": 60, "y": 9.0}, "answer": {"line": 8, "unique_id": "a"}}
    write_journal(folder, entry, distrust=distrust)
    expected = killed_stream(other, (), distrust)
    expected.update(series("a", [9.0], start=60), distrust=distrust)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), expected.predict())

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(access, "make_store", killed)  # after the states were saved, before there is a store
    with pytest.raises(KeyboardInterrupt):
        Service(folder, n_paths=5)
    monkeypatch.undo()
    service = Service(folder, n_paths=5, distrust=distrust)
    assert not (folder / "stream.jsonl").exists()
    assert (service.n_taken, service.last_answers) == (8, (entry["answer"],))
    assert service.distrusted_before == distrust
    service.close()
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), expected.predict())


def test_a_journal_written_by_0_1_0_is_replayed(folder):
    """Version 1, as that release wrote it: without a level of distrust in its head."""
    other = shutil.copytree(folder, folder.parent / "other")
    fit = json.loads((folder / "config.json").read_text())["fit"]
    head = {"format": "smc-transformer-stream", "version": 1, "fit": fit, "lines": 7, "answer": None}
    rows = [
        {"line": 8, "row": {"unique_id": "a", "ds": 60, "y": 0.1}, "answer": {"line": 8}},
        {"line": 9, "row": None, "answer": {"line": 9, "error": "unknown series"}},
        {"line": 10, "row": {"unique_id": "a", "ds": 61, "y": None}, "answer": {"line": 10}},
    ]
    text = "".join(json.dumps(one) + "\n" for one in (head, *rows)) + '{"line": 11, "row": {"uni'
    (folder / "stream.jsonl").write_text(text)
    expected = Forecaster.load(other)
    expected.update(series("a", [0.1, float("nan")], start=60))
    found = Forecaster.load(folder)
    assert found.fitted.following.series["a"].last_time == 61
    pd.testing.assert_frame_equal(found.predict(), expected.predict())
    service = Service(folder, n_paths=5)
    assert service.n_taken == 10
    service.close()


def test_a_backup_does_not_make_a_forecaster_forget_what_it_has_seen(folder, tmp_path):
    killed_stream(folder, (60, 61))
    loaded, backup = Forecaster.load(folder), tmp_path / "backup"
    loaded.save(backup)
    loaded.update(series("a", [0.3], start=62))
    loaded.save(folder)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), loaded.predict())
    # Nor may what it has seen of one stream stand for what it has not seen of the other.
    killed_stream(backup, (62, 63))
    with pytest.raises(SavedForecasterError, match=r"2 lines.*has seen 0"):
        loaded.save(backup)
