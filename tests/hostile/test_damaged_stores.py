"""A store in which a bit has flipped is refused: a replayed row must be the one that was answered."""

import json
import shutil
import sqlite3

import pytest
from helpers.flips import refused_after_flips
from helpers.forecaster_tables import make, walks

from smc_transformer.forecaster import Forecaster, SavedForecasterError
from smc_transformer.forecaster.folder.store.accepted import seal_of_row
from smc_transformer.forecaster.live import Service
from smc_transformer.support.checksums import sealed

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run the package


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A stream that was stopped after three lines, without a save of its states."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    make().fit(walks(40), progress=False).save(folder)
    service = Service(folder, n_paths=5)
    for number, time in enumerate((40, 41, 42), start=1):
        service.take(json.dumps({"unique_id": "a", "ds": time, "y": 0.125}).encode(), number)
    service.close()
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def test_a_flipped_bit_is_refused_or_means_the_same(saved, folder):
    assert refused_after_flips(folder / "stream.sqlite", saved, b'"y": 0.125', n_places=120) > 3


@pytest.mark.parametrize("keep", [0, 100, 4096, 9000])
def test_a_file_that_was_cut_off_is_refused(folder, keep):
    path = folder / "stream.sqlite"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SavedForecasterError, match=r"stream\.sqlite"):
        Forecaster.load(folder)


def test_a_row_that_was_removed_is_missed(folder):
    with sqlite3.connect(folder / "stream.sqlite") as connection:
        connection.execute("DELETE FROM accepted WHERE time = '42'")
    connection.close()
    with pytest.raises(SavedForecasterError, match="of 3 rows 2 are there"):
        Forecaster.load(folder)


@pytest.mark.parametrize(
    "cells",
    [
        [],
        {"unique_id": ["a"], "ds": 42, "y": 1},
        {"unique_id": "b", "ds": 42, "y": 1},
        {"unique_id": "a", "ds": 10**9, "y": 1},
        {"unique_id": "a", "ds": 42, "y": "1"},
        {"unique_id": "a", "ds": "soon", "y": 1},
    ],
)
def test_rows_that_no_stream_writes_are_refused_with_any_checksum(folder, cells):
    with sqlite3.connect(folder / "stream.sqlite") as connection:
        ((series, time, number, place, answer),) = connection.execute(
            "SELECT series, time, round, place, answer FROM accepted WHERE time = '42'"
        )
        parts = [series, time, number, place, json.dumps({"cells": cells, "distrust": None}), answer]
        statement = "UPDATE accepted SET cells = ?, checksum = ? WHERE time = '42'"
        connection.execute(statement, (parts[4], seal_of_row(parts)))
    connection.close()
    with pytest.raises(SavedForecasterError, match=r"stream\.sqlite is damaged"):
        Forecaster.load(folder)


@pytest.mark.parametrize("change", ["round = round + 1", "series = '\"b\"'", "state = substr(state, 1, 3000)"])
def test_states_that_no_stream_writes_are_refused(folder, change):
    service = Service(folder, n_paths=5)
    service.save()
    service.close()
    assert Forecaster.load(folder).fitted.following.series["a"].last_time == 42
    with sqlite3.connect(folder / "stream.sqlite") as connection:
        connection.execute(f"UPDATE states SET {change}")
    connection.close()
    with pytest.raises(SavedForecasterError, match="state"):
        Forecaster.load(folder)


@pytest.mark.parametrize(
    "change",
    [{"fit": "x"}, {"lines": -1}, {"answers": 7}, {"distrust": "a"}, {"version": 99}, {"format": "x"}, {"saved": None}],
)
def test_documents_that_no_stream_writes_are_refused_with_any_checksum(folder, change):
    with sqlite3.connect(folder / "stream.sqlite") as connection:
        ((text,),) = connection.execute("SELECT document FROM stream")
        document = {**json.loads(text), **change}
        connection.execute("UPDATE stream SET document = ?", (json.dumps(sealed(document)),))
    connection.close()
    with pytest.raises(SavedForecasterError, match=r"stream\.sqlite"):
        Forecaster.load(folder)
