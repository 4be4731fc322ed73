"""Disks that fail: whichever write, flush or rename of a save it is, what was there before can be loaded.

Nothing is left behind but the folder, and the files have the mode that the user's umask says.
"""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pandas as pd
import pytest
from helpers.command_tables import QUICK, fails, run, waves, write
from helpers.forecaster_tables import make, series, walks

from smc_transformer.cli.commands import fit as fit_command
from smc_transformer.forecaster import Forecaster, SavedForecasterError
from smc_transformer.forecaster.folder import access
from smc_transformer.forecaster.folder.store import databases
from smc_transformer.forecaster.folder.store.accepted import Store
from smc_transformer.forecaster.live import Service
from smc_transformer.learning import trainer

FULL = OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def fitted():
    return make().fit(walks(40), progress=False)


class Faults:
    """Counts writes, flushes and renames, and lets one of them fail."""

    def __init__(self, patch):
        self.count, self.failing = 0, None
        opened, replace, fsync = Path.open, os.replace, os.fsync

        def tick():
            self.count += 1
            if self.count == self.failing:
                raise FULL

        def open_file(path, mode="r", *arguments, **options):
            file = opened(path, mode, *arguments, **options)
            if "w" not in mode:
                return file
            write = file.write

            class Watched:
                def __enter__(self):
                    return self

                def __exit__(self, *error):
                    file.close()

                def __getattr__(self, name):
                    return getattr(file, name)

                def write(self, data):
                    tick()
                    return write(data)

            return Watched()

        patch.setattr(Path, "open", open_file)
        patch.setattr(os, "replace", lambda *names: (tick(), replace(*names)))
        patch.setattr(os, "fsync", lambda number: (tick(), fsync(number)))


def n_operations(monkeypatch, save):
    with monkeypatch.context() as patch:
        faults = Faults(patch)
        save()
    return faults.count


def fail_at(monkeypatch, number, save):
    with monkeypatch.context() as patch:
        Faults(patch).failing = number
        try:
            save()
        except OSError as error:
            return error
    return None


def test_an_update_is_saved_or_was_never_there(fitted, monkeypatch, tmp_path):
    fitted.save(tmp_path / "model")
    before = Forecaster.load(tmp_path / "model").predict()
    newer = Forecaster.load(tmp_path / "model")
    newer.update(series("a", [0.3], start=40))
    shutil.copytree(tmp_path / "model", tmp_path / "kept")
    count = n_operations(monkeypatch, lambda: newer.save(tmp_path / "model"))
    assert count >= 5
    for number in range(1, count + 1):
        shutil.rmtree(tmp_path / "model")
        shutil.copytree(tmp_path / "kept", tmp_path / "model")
        error = fail_at(monkeypatch, number, lambda: newer.save(tmp_path / "model"))
        found = Forecaster.load(tmp_path / "model").predict()
        # Only the flush of the folder's names comes after the rename, and not all file systems know it.
        pd.testing.assert_frame_equal(found, before if error is not None else newer.predict())
        assert error is not None or number == count
        assert sorted(os.listdir(tmp_path / "model")) == ["config.json", "model.safetensors", "states.safetensors"]


def test_a_whole_folder_is_saved_or_was_never_there(fitted, monkeypatch, tmp_path):
    other = make(seed=1).fit(walks(40), progress=False)
    count = n_operations(monkeypatch, lambda: other.save(tmp_path / "elsewhere"))
    assert count >= 12
    expected = {True: fitted.predict(n_paths=5), False: other.predict(n_paths=5)}
    for number in range(1, count + 2):
        folder = tmp_path / str(number) / "model"
        fitted.save(folder)
        error = fail_at(monkeypatch, number, lambda folder=folder: other.save(folder))
        pd.testing.assert_frame_equal(Forecaster.load(folder).predict(n_paths=5), expected[error is not None])
        if error is not None:
            assert not (folder.parent / "model.unfinished").exists()
            other.save(folder)  # as soon as there is room
            assert os.listdir(folder.parent) == ["model"]


def test_what_a_kill_after_a_replacement_has_left_goes_with_the_next_save(fitted, monkeypatch, tmp_path):
    make(seed=1).fit(walks(40), progress=False).save(tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        fitted.save(tmp_path / "model")
    assert sorted(os.listdir(tmp_path)) == ["model", "model.replaced"]
    fitted.save(tmp_path / "model")  # the same fit: its states alone are written
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_files_have_the_mode_that_the_umask_says(fitted, mask, tmp_path):
    before = os.umask(mask)
    try:
        fitted.save(tmp_path / "model")
        Forecaster.load(tmp_path / "model").save(tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()}
    assert modes == dict.fromkeys(("config.json", "model.safetensors", "states.safetensors"), 0o666 & ~mask)


def test_a_fit_without_room_is_refused_before_the_training(capsys, monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    monkeypatch.setattr(trainer.Trainer, "fit", lambda *arguments: pytest.fail("it was trained"))
    message = fails(capsys, 1, "fit", write(waves(60), tmp_path / "data.csv"), *QUICK, "--out", tmp_path / "model")
    assert "cannot be written: it needs about" in message


def test_a_fit_below_a_file_is_refused_before_the_training(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(trainer.Trainer, "fit", lambda *arguments: pytest.fail("it was trained"))
    (tmp_path / "file").write_text("in the way")
    data = write(waves(60), tmp_path / "data.csv")
    message = fails(capsys, 1, "fit", data, *QUICK, "--out", tmp_path / "file" / "model")
    assert "file is no folder" in message


class Steps:
    """In the place of the trainer's progress reports: counts training steps, and interrupts after some of them."""

    def __init__(self, interrupted_after=None):
        self.n_taken, self.interrupted_after = 0, interrupted_after

    @contextlib.contextmanager
    def __call__(self, title, total, *, enabled=True):
        self.is_first = True
        yield self

    def advance(self, amount, message=""):
        if not self.is_first:  # which tells how many were taken in an earlier run
            self.n_taken += amount
        self.is_first = False
        if self.n_taken == self.interrupted_after:
            raise KeyboardInterrupt


def test_a_training_whose_save_fails_is_not_lost(capsys, monkeypatch, tmp_path):
    data, model = write(waves(60), tmp_path / "data.csv"), tmp_path / "model"
    with monkeypatch.context() as patch:

        def is_full(*_):
            raise FULL

        patch.setattr(access.files, "replace_folder", is_full)
        message = fails(capsys, 1, "fit", data, *QUICK, "--out", model)
    assert "No space left on device; the training is kept in" in message
    steps = Steps()
    monkeypatch.setattr(trainer, "progress_report", steps)
    code, out, _ = run(capsys, "fit", data, *QUICK, "--out", model)
    assert code == 0
    assert steps.n_taken == 0  # every stage was done
    assert "resuming" in out
    assert sorted(os.listdir(tmp_path)) == ["data.csv", "model"]


def test_a_fit_that_was_interrupted_half_way_resumes_with_the_same_result(capsys, monkeypatch, tmp_path):
    data = write(waves(60), tmp_path / "data.csv")
    steps = Steps()
    monkeypatch.setattr(trainer, "progress_report", steps)
    assert run(capsys, "fit", data, *QUICK, "--out", tmp_path / "whole")[0] == 0
    assert steps.n_taken > 2
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "progress_report", Steps(interrupted_after=2))
        assert run(capsys, "fit", data, *QUICK, "--out", tmp_path / "model")[0] == 130
    code, _, _ = run(capsys, "fit", data, *QUICK, "--out", tmp_path / "model")
    assert code == 0
    found, expected = (Forecaster.load(tmp_path / name) for name in ("model", "whole"))
    pd.testing.assert_frame_equal(found.predict(), expected.predict())


def test_other_settings_do_not_resume_it(capsys, monkeypatch, tmp_path):
    data, model = write(waves(60), tmp_path / "data.csv"), tmp_path / "model"
    with monkeypatch.context() as patch:
        patch.setattr(fit_command, "say", lambda text: None)
        patch.setattr(Forecaster, "save", lambda *_: (_ for _ in ()).throw(FULL))
        assert run(capsys, "fit", data, *QUICK, "--out", model)[0] == 1
    assert run(capsys, "fit", data, *QUICK, "--seed", 1, "--out", model)[0] == 0
    assert run(capsys, "fit", data, *QUICK, "--seed", 1, "--out", tmp_path / "expected")[0] == 0
    found, expected = (Forecaster.load(folder) for folder in (model, tmp_path / "expected"))
    pd.testing.assert_frame_equal(found.predict(), expected.predict())


def test_a_store_that_could_not_be_made_leaves_nothing(fitted, monkeypatch, tmp_path):
    fitted.save(tmp_path / "model")
    (tmp_path / "model" / "stream.sqlite.unfinished-wal").write_text("of a process that was killed")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "make_tables", lambda *_: (_ for _ in ()).throw(FULL))
        with pytest.raises(OSError, match="No space left"):
            Service(tmp_path / "model")
    assert sorted(os.listdir(tmp_path / "model")) == ["config.json", "model.safetensors", "states.safetensors"]
    Service(tmp_path / "model").close()


def test_a_store_whose_log_stays_beside_it_is_not_one(fitted, monkeypatch, tmp_path):
    """SQLite closes without a word where it cannot bring its log into the file, as while somebody else is reading."""
    fitted.save(tmp_path / "model")
    readers, make_tables = [], Store.make_tables

    def read_from_elsewhere(store, begin):
        reader = sqlite3.connect(tmp_path / "model" / "stream.sqlite.unfinished")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
        readers.append(reader)
        make_tables(store, begin)

    with monkeypatch.context() as patch:
        patch.setattr(databases, "WAIT", 0.1)
        patch.setattr(Store, "make_tables", read_from_elsewhere)
        with pytest.raises(SavedForecasterError, match="locked"):
            Service(tmp_path / "model")
    readers[0].close()
    assert sorted(os.listdir(tmp_path / "model")) == ["config.json", "model.safetensors", "states.safetensors"]
    Service(tmp_path / "model").close()
