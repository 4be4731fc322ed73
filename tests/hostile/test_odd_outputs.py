"""Where commands write: refused before the work, in one line; and standard files that are closed or full."""

import contextlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import matplotlib.figure
import pandas as pd
import pytest
from helpers.command_tables import fails, run
from helpers.forecaster_tables import make, walks

from smc_transformer.cli import tables
from smc_transformer.forecaster import Forecaster


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    make().fit(walks(40), progress=False).save(folder)
    return folder


@pytest.fixture
def no_work(monkeypatch):
    monkeypatch.setattr(Forecaster, "load", lambda *_: pytest.fail("the work had begun"))


@pytest.mark.parametrize("name", ["x.xlsx", "x.json", "x.csv.xlsx", "x.xlsx.gz"])
@pytest.mark.parametrize("command", ["predict", "score", "backtest"])
def test_tables_in_other_formats_are_refused_before_the_work(capsys, model, no_work, tmp_path, name, command):
    data = () if command == "predict" else ("--data", "data.csv")
    message = fails(capsys, 1, command, model, *data, "--out", tmp_path / name)
    assert name in message
    assert "tables are written as CSV, TSV or Parquet" in message
    assert not (tmp_path / name).exists()


def test_pictures_in_other_formats_and_folders_are_refused_before_the_work(capsys, model, no_work, tmp_path):
    assert "not written as 'docx'" in fails(capsys, 1, "predict", model, "--plot", tmp_path / "x.docx")
    assert "is a folder" in fails(capsys, 1, "predict", model, "--out", tmp_path)
    (tmp_path / "file").write_text("in the way")
    assert "is no folder" in fails(capsys, 1, "predict", model, "--out", tmp_path / "file" / "x.csv")
    assert "is no folder" in fails(capsys, 1, "report", model, "--out", tmp_path / "file" / "x.html")


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="no folder in which nobody can make a file")
@pytest.mark.parametrize("place", ["/proc/x", "/proc/sub/x"])  # root is told that it may write there
@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "MODEL", "--out", ".csv"),
        ("predict", "MODEL", "--plot", ".png"),
        ("predict", "MODEL", "--data", "data.csv", "--errors", ".csv"),
        ("predict", "MODEL", "--data", "data", "--engine", "dask", "--out", ""),
        ("score", "MODEL", "--data", "data.csv", "--out", ".parquet"),
        ("score", "MODEL", "--data", "data.csv", "--plot", ".pdf"),
        ("backtest", "MODEL", "--data", "data.csv", "--out", ".csv.gz"),
        ("backtest", "MODEL", "--data", "data.csv", "--plot", ".svg"),
        ("report", "MODEL", "--out", ".html"),
        ("stream", "MODEL", "--state", ""),
        ("serve", "MODEL", "--state", ""),
        ("fit", "data.csv", "--horizon", 2, "--out", ""),
    ],
    ids=lambda arguments: " ".join(map(str, (arguments[0], arguments[-2]))),
)
def test_places_where_nobody_can_write_are_refused_before_the_work(capsys, model, no_work, place, arguments):
    *words, ending = (model if word == "MODEL" else word for word in arguments)
    message = fails(capsys, 1, *words, place + ending)
    assert f"{place}{ending} cannot be written: " in message
    assert "no file can be made in /proc" in message or "permission denied" in message  # who is not root


def test_a_model_whose_folder_takes_no_file_is_refused_before_it_is_updated(capsys, model, no_work, monkeypatch):
    def full(**_):
        raise FULL

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    for command in ("predict", "score"):
        message = fails(capsys, 1, command, model, "--new", "rows.csv", "--save")
        assert f"{model} cannot be written: no file can be made in" in message
        assert "No space left on device" in message


def test_a_file_that_can_be_written_in_a_folder_that_cannot(capsys, model, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text("what was there")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and access(path, mode))
    assert run(capsys, "predict", model, "--out", tmp_path / "x.csv", "--paths", 5)[0] == 0
    assert (tmp_path / "x.csv").read_text().startswith("unique_id,ds,y,")


def test_a_link_that_leads_to_itself_is_replaced_or_named(capsys, model, tmp_path):
    link = tmp_path / "x.csv"
    link.symlink_to("x.csv")
    for option in (("fit", "data.csv", "--horizon", 2, "--out"), ("stream", model, "--state"), ("predict",)):
        assert str(link) in fails(capsys, 1, *option, link)
    assert run(capsys, "predict", model, "--out", link)[0] == 0
    assert not link.is_symlink()
    assert link.read_text().startswith("unique_id,ds,y,")


@pytest.mark.parametrize("port", ["0", "65536", "99999", "http"])
def test_ports_that_are_none(capsys, model, port):
    assert "--port" in fails(capsys, 2, "serve", model, "--port", port)


def test_names_without_an_ending_are_csv(capsys, model, tmp_path):
    assert run(capsys, "predict", model, "--out", tmp_path / "table", "--paths", 5)[0] == 0
    assert (tmp_path / "table").read_text().startswith("unique_id,ds,y,")


def shell(command, model):
    environment = {**os.environ, "SMCT": f"{sys.executable} -m smc_transformer.cli", "MODEL": str(model)}
    return subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("$SMCT predict $MODEL --paths 5 >&-", 1, "standard output is closed"),
        ("$SMCT predict $MODEL --paths 5 > /dev/full", 1, "No space left on device"),
        ("$SMCT stream $MODEL <&-", 1, "standard input is closed"),
        ("$SMCT predict $MODEL --data - <&-", 1, "standard input is closed"),
        ("$SMCT predict $MODEL --paths 5 2>&-", 0, ""),
        ("$SMCT predict $MODEL/nowhere <&- >&- 2>&-", 1, ""),
    ],
)
def test_standard_files_that_are_closed_or_full(model, command, code, words):
    if "/dev/full" in command and not os.path.exists("/dev/full"):
        pytest.skip("no full device on this system")
    done = shell(command, model)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1


FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize("command", ["table", "packed table", "parquet", "picture", "page"])
def test_what_was_there_survives_a_disk_that_fills_while_results_are_written(
    capsys, model, tmp_path, monkeypatch, command
):
    endings = {"table": "csv", "packed table": "csv.gz", "parquet": "parquet", "picture": "png", "page": "html"}
    name = f"x.{endings[command]}"
    out = tmp_path / name
    out.write_text("what was there")
    monkeypatch.setattr(pd.DataFrame, "to_csv", half_written)
    monkeypatch.setattr(tables, "opened", half_opened)
    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", half_written)
    monkeypatch.setattr(Path, "write_text", lambda file, *_, **__: half_written(None, file))
    options = {"picture": ("predict", model, "--json", "--plot"), "page": ("report", model, "--out")}
    arguments = options.get(command, ("predict", model, "--out"))
    message = fails(capsys, 1, *arguments, out, "--paths", 5)
    assert "No space left on device" in message
    assert name in message
    monkeypatch.undo()
    assert out.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [out]


def test_a_place_that_takes_no_new_folder_is_named_as_it_was_given(capsys, model, tmp_path, monkeypatch):
    def refused(path, *_):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(os, "mkdir", refused)
    message = fails(capsys, 1, "report", model, "--out", tmp_path / "x.html", "--paths", 5)
    assert message == f"smct: {tmp_path / 'x.html'}: No space left on device\n"


def half_written(_, file, *arguments, **options):
    with open(file, "w") as half:
        half.write("half of it")
    raise FULL


@contextlib.contextmanager
def half_opened(file, mode):
    half_written(None, file)
    yield


def test_results_keep_the_mode_and_the_links_of_the_files_that_they_replace(capsys, model, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    goal, link = tmp_path / "elsewhere" / "x.csv", tmp_path / "x.csv"
    goal.write_text("")
    goal.chmod(0o600)
    link.symlink_to(goal)
    assert run(capsys, "predict", model, "--out", link, "--paths", 5)[0] == 0
    assert link.is_symlink()
    assert goal.read_text().startswith("unique_id,ds,y,")
    assert goal.stat().st_mode & 0o777 == 0o600


def test_results_go_into_devices_and_pipes_as_they_are(model):
    if not os.path.exists("/dev/full"):
        pytest.skip("no full device on this system")
    done = shell("$SMCT predict $MODEL --paths 5 --out /dev/full", model)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "smct: /dev/full: No space left on device"
    done = shell("$SMCT predict $MODEL --paths 5 --out /dev/stdout | head -c 9", model)
    assert done.stdout == "unique_id"


def test_an_archive_names_what_is_in_it_by_its_own_name(capsys, model, tmp_path):
    assert run(capsys, "predict", model, "--out", tmp_path / "x.csv.zip", "--paths", 5)[0] == 0
    assert zipfile.ZipFile(tmp_path / "x.csv.zip").namelist() == ["x.csv"]
