"""Saving and loading: the next answer is as if nothing had happened, and bad files are refused by name."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from helpers.forecaster_tables import head, make, rows_between, series, walks

from smc_transformer.forecaster import Forecaster, SavedForecasterError
from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.frequency import times_after
from smc_transformer.kernels import disabled
from smc_transformer.support.checksums import sealed
from smc_transformer.support.randomness import as_generator

FILES = ("config.json", "model.safetensors", "states.safetensors")


def gappy_table():
    table = walks(80, 74)
    table.loc[table["ds"] == 65, "y"] = float("nan")
    return table


@pytest.fixture(scope="module")
def fitted():
    return make().fit(head(gappy_table(), 60), progress=False)


@pytest.fixture
def folder(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_loaded_forecaster_says_the_same(fitted, folder):
    assert sorted(os.listdir(folder)) == sorted(FILES)
    loaded = Forecaster.load(folder)
    assert loaded.settings == fitted.settings
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict())
    new = walks(30, seed=9).assign(unique_id="new")
    pd.testing.assert_frame_equal(loaded.predict(new), fitted.predict(new))
    pd.testing.assert_frame_equal(loaded.score(gappy_table()), fitted.score(gappy_table()))


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_survive(tmp_path, zone):
    table = walks(60).assign(ds=pd.date_range("2024-10-25 02:30", periods=60, freq="h", tz=zone), unique_id=3)
    forecaster = make(freq="h", future_inputs=["x"], calendar=["hour"]).fit(table.assign(x=1.0), progress=False)
    forecaster.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    future = pd.DataFrame(
        {"unique_id": 3, "ds": pd.date_range(table["ds"].iloc[-1], periods=5, freq="h")[1:], "x": 0.5}
    )
    pd.testing.assert_frame_equal(loaded.predict(future=future), forecaster.predict(future=future))


STREAM = """
import os, signal, sys
import pandas as pd, torch
from smc_transformer.forecaster import Forecaster
torch.set_num_threads(1)
folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = pd.read_pickle(sys.argv[4])
forecaster = Forecaster.load(folder)
for row in range(first, last):
    forecaster.update(table[table["ds"] == row])
    forecaster.save(folder)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_and_loaded_is_as_if_nothing_had_happened(fitted, folder, tmp_path):
    table = gappy_table()
    rows_between(table, 60, 80).to_pickle(tmp_path / "rows")
    for first, last in ((60, 64), (64, 68)):  # two processes, each killed in the end
        command = [sys.executable, "-c", STREAM, str(folder), str(first), str(last), str(tmp_path / "rows")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    uninterrupted = Forecaster.load(_copy(fitted, tmp_path / "copy"))
    for row in range(60, 68):
        uninterrupted.update(table[table["ds"] == row])
    resumed = Forecaster.load(folder)
    pd.testing.assert_frame_equal(resumed.predict(), uninterrupted.predict())
    next_row = table[table["ds"] == 68]
    pd.testing.assert_frame_equal(resumed.update(next_row), uninterrupted.update(next_row))


def _copy(forecaster, path):
    forecaster.save(path)
    return path


def test_an_update_replaces_the_states_alone(fitted, folder):
    before = {name: (folder / name).stat().st_mtime_ns for name in FILES}
    loaded = Forecaster.load(folder)
    loaded.update(series("a", [0.1], start=60))
    loaded.save(folder)
    changed = [name for name in FILES if (folder / name).stat().st_mtime_ns != before[name]]
    assert changed == ["states.safetensors"]
    assert sorted(os.listdir(folder)) == sorted(FILES)
    assert Forecaster.load(folder).fitted.following.series["a"].last_time == 60


def test_another_fit_replaces_the_whole_folder_or_nothing(fitted, folder, monkeypatch):
    other = make(seed=1).fit(head(gappy_table(), 60), progress=False)
    replace = os.replace

    def dies_when_the_new_folder_moves_in(source, target):
        if str(source).endswith("model.unfinished"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", dies_when_the_new_folder_moves_in)
    with pytest.raises(KeyboardInterrupt):
        other.save(folder)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), fitted.predict())
    monkeypatch.undo()
    other.save(folder)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), other.predict())
    assert sorted(os.listdir(folder.parent)) == ["model"]


@pytest.mark.parametrize("name", FILES)
def test_truncated_and_missing_files_are_refused(folder, name):
    whole = (folder / name).read_bytes()
    for kept in (0, 5, len(whole) // 2, len(whole) - 3):
        (folder / name).write_bytes(whole[:kept])
        with pytest.raises(SavedForecasterError, match=f"{name} is not readable"):
            Forecaster.load(folder)
    (folder / name).unlink()
    with pytest.raises(SavedForecasterError, match=f"{name} is missing"):
        Forecaster.load(folder)


def test_foreign_and_newer_files_are_refused(fitted, folder, tmp_path):
    with pytest.raises(SavedForecasterError, match="is not a folder with a saved forecaster"):
        Forecaster.load(tmp_path / "nowhere")
    config = json.loads((folder / "config.json").read_text())
    for changes, message in (
        ({"format": "cake"}, "is not the config of a saved forecaster"),
        ({"version": 99}, "has format version 99, this release reads up to 4; update"),
        ({"fit": "0"}, "model.safetensors belongs to another fit"),
        ({"settings": {**config["settings"], "targets": [3]}}, "config.json is damaged"),
    ):
        (folder / "config.json").write_text(json.dumps(sealed({**config, **changes})))
        with pytest.raises(SavedForecasterError, match=message):
            Forecaster.load(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("hours of work")
    with pytest.raises(SavedForecasterError, match="something else than a saved forecaster: nothing was written"):
        fitted.save(tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


def test_states_of_another_fit_are_refused(folder, tmp_path):
    other = _copy(make(seed=1).fit(head(gappy_table(), 60), progress=False), tmp_path / "other")
    Path(folder / "states.safetensors").write_bytes((other / "states.safetensors").read_bytes())
    with pytest.raises(SavedForecasterError, match=r"states\.safetensors belongs to another fit than config\.json"):
        Forecaster.load(folder)


def test_a_folder_saved_by_version_0_1_0_loads_and_gives_its_forecasts(monkeypatch):
    """The folder and the table of forecasts beside it were written by that version, without kernels.

    It drew the paths of series of different lengths one after the other, from one generator.
    """
    kept = Path(__file__).parent / "saved_by_0_1_0"
    expected = pd.DataFrame(json.loads((kept / "predict.json").read_text())["rows"])
    forecaster, generator = Forecaster.load(kept / "model"), as_generator(1)
    monkeypatch.setattr(Fitted, "streams", lambda *_: generator)
    found = []
    for name, followed in forecaster.fitted.following.series.items():
        ahead = forecaster.read_future({name: times_after(followed.last_time, 4, forecaster.settings.freq)}, None)
        with disabled():
            forecast = forecaster.fitted.forecast(forecaster.fitted.following, ahead, 200)
        found.append(forecast.table((80,), None))
    pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), expected, rtol=1e-3, check_dtype=False)


def test_a_folder_saved_by_version_0_1_0_can_be_saved_again(tmp_path):
    folder = shutil.copytree(Path(__file__).parent / "saved_by_0_1_0" / "model", tmp_path / "model")
    loaded = Forecaster.load(folder)
    loaded.save(folder)
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), loaded.predict())
