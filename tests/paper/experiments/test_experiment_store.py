"""Files of cells: whole or not there, and joined into results.json."""

import json
import os
from pathlib import Path

import pytest

from smct_paper.experiments.grid import Cell
from smct_paper.experiments.store import Store, write_whole

CELL = Cell("model1", "folds", "lstm", "paper", 3)
WANTED = {"profile": "quick", "settings": {"epochs": 12}, "evaluation": {"n_windows": 500}}
SCORES = {"metrics": {"mse": 0.5}, "per_step": {"mse": [0.5]}, "pit": None, "coverage": None, "n_windows": 100}
RECORD = {**WANTED, "training": {}, "seconds": {"fit": 1.0, "evaluate": 1.0}, "versions": {}}
FINISHED = {**RECORD, "tasks": {"unistep": SCORES, "multistep": SCORES}}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def test_states(store):
    assert store.state(CELL, WANTED) == "open"
    store.write(CELL, {**RECORD, "error": "ValueError: no"})
    assert store.state(CELL, WANTED) == "failed"
    store.write(CELL, FINISHED)
    assert store.state(CELL, WANTED) == "done"
    for changed in ({"profile": "paper"}, {"settings": {"epochs": 50}}, {"evaluation": {"n_windows": None}}):
        assert store.state(CELL, {**WANTED, **changed}) == "changed"
    store.remove([CELL])
    assert store.state(CELL, WANTED) == "open"


def test_a_failure_does_not_replace_a_result(store):
    store.write(CELL, FINISHED)
    store.write(CELL, {**RECORD, "profile": "paper", "error": "FileNotFoundError: no data"})
    assert store.state(CELL, WANTED) == "failed"  # and is tried again
    assert [row["profile"] for row in store.assemble()] == [WANTED["profile"]] * 2
    store.write(CELL, FINISHED)
    assert store.state(CELL, WANTED) == "done"


@pytest.mark.parametrize("content", ["", '{"dataset": "mod', "[]"])
def test_a_file_that_cannot_be_read_is_an_open_cell(store, content):
    store.cells.mkdir(parents=True)
    store.path(CELL).write_text(content)
    assert store.state(CELL, WANTED) == "open"
    assert store.assemble() == []


def test_rows_have_the_keys_that_the_report_reads(store):
    store.write(CELL, FINISHED)
    real = Cell("stock", "paper", "smc_transformer", "best", 1)
    store.write(real, FINISHED)
    store.write(Cell("stock", "paper", "lstm", "paper", 0), {**RECORD, "error": "ValueError: no"})
    rows = store.assemble()
    assert json.loads(store.results.read_text()) == rows
    assert [(row["dataset"], row["task"]) for row in rows] == [
        ("model1", "unistep"),
        ("model1", "multistep"),
        ("stock", "unistep"),
        ("stock", "multistep"),
    ]
    of_cell = {"dataset", "model", "config", "split", "profile", "settings", "evaluation", "training", "seconds"}
    of_task = {"task", "metrics", "per_step", "pit", "coverage", "n_windows"}
    assert set(rows[0]) == of_cell | of_task | {"versions", "fold"}
    assert set(rows[2]) == of_cell | of_task | {"versions", "seed"}


def test_cells_come_back_from_results(store):
    long = {**FINISHED, "settings": {"learning_rate": 1 / 3}}
    real = Cell("stock", "paper", "smc_transformer", "best", 1)
    store.write(CELL, FINISHED)
    store.write(real, long)
    rows = store.assemble()
    store.remove([CELL, real])
    store.cells.rmdir()
    assert store.has_lost_its_cells
    assert store.restore() == 2
    assert not store.has_lost_its_cells
    assert store.assemble() == rows
    assert store.state(CELL, WANTED) == "done"
    assert store.state(real, {"settings": {"learning_rate": 1 / 3}}) == "done"  # six digits of it are kept
    assert store.state(real, {"settings": {"learning_rate": 0.33}}) == "changed"


@pytest.mark.parametrize("row", [1, {}, {"dataset": "stock", "split": "paper", "model": "lstm", "config": "paper"}])
def test_results_that_are_none_are_not_taken_for_cells(store, row):
    store.folder.mkdir(parents=True)
    store.results.write_text(json.dumps([row]))
    with pytest.raises(ValueError, match="no result"):
        store.restore()
    assert not store.cells.exists()


def test_a_write_that_breaks_off_leaves_the_old_file(store, monkeypatch):
    store.write(CELL, FINISHED)

    def full_disk(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        store.write(CELL, {"error": "new"})
    assert store.state(CELL, WANTED) == "done"
    assert [path.name for path in store.cells.iterdir()] == [f"{CELL.name}.json"]


def test_nobody_sees_half_a_file(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    write_whole(path, "old")
    seen = []
    replace = Path.replace

    def look(draft, target):
        seen.append((path.read_text(), draft.read_text(), draft.suffix))
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", look)
    write_whole(path, "new")
    assert seen == [("old", "new", ".tmp")]
    assert path.read_text() == "new"


def test_numbers_that_json_does_not_have_are_refused(store):
    with pytest.raises(ValueError, match="JSON"):
        store.write(CELL, {"mse": float("nan")})
    assert not store.path(CELL).exists()
