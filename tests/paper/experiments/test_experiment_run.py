"""`smct experiment` from end to end, with stand-ins for the methods."""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from multiprocessing import active_children
from pathlib import Path

import pytest
from rich.console import Console

from smc_transformer import cli
from smct_paper.commands import experiment
from smct_paper.experiments import grid, profiles
from smct_paper.experiments.grid import Choice, select_cells
from smct_paper.experiments.profiles import QUICK
from smct_paper.experiments.progress import GridProgress, LiveDisplay, display, duration
from smct_paper.experiments.store import Store
from smct_paper.experiments.workers import Worker

TINY = ("run", "synthetic", "--dataset", "model1", "--seeds", "2")
SLOW = (*TINY, "--dataset", "model1", "model2", "--model", "slow", "--jobs", "2", "--seeds", "3")


def until(condition, seconds=60):
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def alive(pid):
    """Whether a process runs (one that nobody has asked for its exit code does not)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def workers_of(pid):
    """Its children that multiprocessing started for work, from their first moment on."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it was another one, and has ended
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def blocks(pid, number):
    """Whether a process holds back a signal."""
    mask = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigBlk:"))
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.usefixtures("standing_in")
def test_a_tiny_grid_in_this_process(tmp_path, capsys):
    out = tmp_path / "results"
    models = ["bayes_optimal", "plain", "naive", "smc_transformer"]
    arguments = ["experiment", *TINY, "--model", *models, "--jobs", "2", "--out", str(out)]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert f"profile quick: baselines train {QUICK.epochs.others} epochs" in printed
    assert "[14/14] model1 folds " in printed
    assert "14 cells finished, 0 failed" in printed

    rows = json.loads((out / "results.json").read_text())
    assert len(rows) == 28
    row = next(row for row in rows if row["model"] == "plain" and row["task"] == "multistep" and row["fold"] == 1)
    epochs = QUICK.baseline_epochs("plain", "model1")
    assert row["settings"] == {"behaviour": "plain", "epochs": epochs, "batch_size": 32}
    assert row["training"] == {"epochs_run": epochs, "n_train": 800, "validation": None}
    assert row["metrics"] == {"mse": 1.5, "crps": 0.25, "picp": None, "energy_score": 1.0}
    assert len(row["per_step"]["mse"]) == 12
    assert row["coverage"] == {"levels": [0.5], "shares": [0.5]}
    assert (row["n_windows"], row["profile"], row["split"], row["config"]) == (100, "quick", "folds", "paper")
    assert set(row["seconds"]) == {"fit", "evaluate"}
    assert {"python", "torch", "smc_transformer"} <= set(row["versions"])

    assert cli.main(["experiment", "list", "synthetic", *arguments[3:-4], "--out", str(out)]) == 0
    assert "14 cells: 14 finished already" in capsys.readouterr().out


def test_a_tiny_grid_in_a_process_of_its_own(command):
    code, out, err = command.run(*TINY, "--model", "plain", "slow", "--jobs", "2", seconds=0)
    assert (code, err) == (0, "")
    assert sorted(command.noted()) == ["plain model1 0", "plain model1 1", "slow model1 0", "slow model1 1"]
    assert len(out.splitlines()) == 2 + 4 + 1  # what will be done, a line for each cell, what was done
    code, out, _ = command.run(*TINY, "--model", "plain", "slow")
    assert code == 0
    assert "4 finished already" in out
    assert len(command.noted()) == 4


def test_failures_are_reported_and_tried_again_and_the_rest_goes_on(command):
    arguments = (*TINY, "--model", "fails", "dies", "overflows", "plain", "--seeds", "1", "--jobs", "1")
    code, out, _ = command.run(*arguments)
    assert code == 1
    assert "1 cells finished, 3 failed" in out
    ending = out.split("finished, 3 failed")[1]
    assert "model1 folds fails paper fold 0: ValueError: cannot fit model1" in ending
    assert "killed by SIGKILL (out of memory?)" in ending
    assert "unistep scores are not finite: mse is inf" in ending
    record = json.loads((command.out / "cells" / "model1-folds-fails-paper-0.json").read_text())
    assert "Traceback" in record["error"]
    assert "raise ValueError" in record["error"]
    assert record["settings"]["behaviour"] == "fails"
    assert {row["model"] for row in json.loads((command.out / "results.json").read_text())} == {"plain"}

    code, out, _ = command.run("list", *arguments[1:-2])
    assert code == 0
    assert "1 finished already, 3 failed before" in out
    assert "ValueError: cannot fit model1" in out

    command.repaired.touch()
    code, out, _ = command.run(*arguments)
    assert code == 1
    assert "1 cells finished, 2 failed" in out
    assert Counter(line.split()[0] for line in command.noted()) == {"fails": 2, "dies": 2, "overflows": 2, "plain": 1}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_goes_on_where_it_stopped(command, how):
    process = command.start(*SLOW, seconds=0.6)
    until(lambda: len(command.finished()) >= 2)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    # Ctrl-C in a terminal reaches the workers too; a kill is sent to one process.
    (os.killpg if how == signal.SIGINT else os.kill)(process.pid, how)
    _, err = process.communicate(timeout=30)
    assert process.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    assert err == ("" if how == signal.SIGKILL else "interrupted\n")
    until(lambda: not any(alive(worker) for worker in workers), seconds=10)

    finished = command.finished()
    assert 2 <= len(finished) < 6
    assert all("tasks" in json.loads(path.read_text()) for path in finished)
    if how != signal.SIGKILL:
        assert len(json.loads((command.out / "results.json").read_text())) == 2 * len(finished)
    before = command.noted()

    code, out, _ = command.run(*SLOW, seconds=0)
    assert code == 0
    assert f"{len(finished)} finished already" in out
    assert len(command.noted()) - len(before) == 6 - len(finished)
    assert len(json.loads((command.out / "results.json").read_text())) == 12


def test_an_interrupt_finds_workers_that_have_just_begun(command):
    process = command.start(*SLOW)
    until(lambda: workers_of(process.pid))
    first = workers_of(process.pid)[0]
    assert blocks(first, signal.SIGINT)  # it cannot ignore it yet
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "interrupted\n")


def test_a_worker_says_nothing_when_its_parent_hangs_up(capfd):
    others = active_children()
    worker = Worker(dict, n_threads=1)
    (process,) = set(active_children()) - set(others)
    worker.begin(())
    until(worker.connection.poll)
    worker.connection.close()  # the answer is not read
    process.join(30)
    assert process.exitcode == 0
    assert capfd.readouterr().err == ""


def test_changed_settings_and_profiles_are_run_again(command):
    arguments = (*TINY, "--model", "smc_transformer", "--config", "best-10", "--seeds", "1")
    assert command.run(*arguments)[0] == 0
    code, out, _ = command.run(*arguments, "--profile", "paper")
    assert code == 0
    assert "1 finished with other settings or another profile and run again" in out
    assert len(command.noted()) == 2

    path = command.out / "cells" / "model1-folds-smc_transformer-best-10-0.json"
    record = json.loads(path.read_text())
    assert (record["profile"], record["settings"]["epochs"]) == ("paper", 30)
    record["settings"]["epochs"] = 29
    path.write_text(json.dumps(record))
    command.run(*arguments, "--profile", "paper")
    assert len(command.noted()) == 3
    assert json.loads(path.read_text())["settings"]["epochs"] == 30

    command.run(*arguments, "--profile", "paper", "--fresh")
    assert len(command.noted()) == 4


@pytest.mark.usefixtures("standing_in")
def test_data_that_are_not_there_fail_and_the_rest_goes_on(tmp_path, monkeypatch, capsys):
    from smct_paper.datasets import files

    monkeypatch.setenv("SMC_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SMC_TRANSFORMER_DATA", str(tmp_path))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens: as if offline
    assert files.data_folders()[0] == tmp_path
    options = ["--dataset", "stock", "model1", "--model", "plain", "--split", "paper", "--seeds", "1"]
    assert cli.main(["experiment", "run", "all", *options, "--out", str(tmp_path / "results")]) == 1
    out = capsys.readouterr().out
    assert "1 cells finished, 1 failed" in out
    assert "failed: stock paper plain paper seed 0: DataFileNotFoundError" in out


@pytest.mark.usefixtures("standing_in")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "synthetic", "--dataset", "model9"], "there are: model1, model2, model3"),
        (["run", "realworld", "--model", "lstn"], "unknown model 'lstn'; there are:"),
        (["run", "synthetic", "--split", "paper"], "folds"),
        (["run", "everything"], "invalid choice"),
        (["run", "synthetic", "--jobs", "0"], "at least 1"),
        (["list", "--config", "nonsense"], "unknown configuration 'nonsense'; there are:"),
    ],
)
def test_wrong_usage(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["experiment", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_the_command_knows_the_groups_and_profiles_without_loading_them():
    assert experiment.GROUPS == grid.GROUPS
    assert tuple(profiles.PROFILES) == experiment.PROFILES


def test_help_does_not_wait_for_torch():
    code = """
import sys
from smc_transformer import cli
try:
    cli.main(["experiment", "run", "--help"])
except SystemExit as stop:
    assert stop.code == 0
assert "torch" not in sys.modules and "rich" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_workers_set_their_threads_before_torch_is_there():
    """The modules that a worker loads before its work must not bring torch with them."""
    code = """
import sys
import smct_paper.experiments.runner
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.usefixtures("standing_in")
class TestDisplay:
    @pytest.fixture
    def cells(self):
        return select_cells("synthetic", QUICK, Choice(datasets=["model1"], models=["plain"]))

    def test_a_terminal_sees_a_bar_and_the_running_cells(self, cells):
        progress = GridProgress(cells, jobs=2)
        console = Console(force_terminal=True, width=120, record=True, file=io.StringIO())
        with display(progress, console) as shown:
            assert isinstance(shown, LiveDisplay)
            progress.begin(cells[0])
            progress.begin(cells[1])
            progress.end(cells[0])
            error = "Traceback\nValueError: no"
            shown.ended(cells[1], progress.end(cells[1], error), {"error": error})
            progress.begin(cells[2])
            console.print(shown.render())
            text = console.export_text()
        assert "failed: model1 folds plain paper fold 1: ValueError: no" in text
        assert "2/5 cells" in text
        assert "1 failed" in text
        assert "fold 2" in text

    def test_the_rest_is_estimated_from_what_is_done(self, cells, monkeypatch):
        now = [0.0]
        monkeypatch.setattr("smct_paper.experiments.progress.monotonic", lambda: now[0])
        progress = GridProgress(cells, jobs=2)
        assert progress.seconds_left() is None
        progress.begin(cells[0])
        progress.begin(cells[1])
        now[0] = 10.0
        progress.end(cells[0])
        progress.begin(cells[2])
        assert progress.seconds_left() == pytest.approx((4 * 10 - 10) / 2)
        assert progress.share == pytest.approx(0.2)

    def test_durations(self):
        assert [duration(seconds) for seconds in (4.2, 61.0, 300.0, 6600.0)] == ["4.2 s", "61 s", "5 min", "1 h 50 min"]


def test_store_of_an_older_run_is_assembled_for_the_report(tmp_path, monkeypatch):
    """A run that was killed has cells, but no results.json."""
    import types

    report = types.ModuleType("smct_paper.experiments.report")
    seen = []
    report.write_report = lambda results, out, console, train: seen.append((results, out, train))
    monkeypatch.setitem(sys.modules, report.__name__, report)
    store = Store(tmp_path / "results")
    store.cells.mkdir(parents=True)
    assert cli.main(["experiment", "report", "--results", str(store.folder)]) == 0
    assert seen == [(store.folder, store.folder, True)]
    assert json.loads(store.results.read_text()) == []


def test_a_report_without_its_packages_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert cli.main(["experiment", "report", "--results", str(tmp_path)]) == 1
    said = "smct: the report needs jinja2: pip install 'smc-transformer[experiments]'\n"
    assert capsys.readouterr().err == said


def test_a_folder_that_takes_no_file_is_refused_before_the_first_cell(tmp_path, monkeypatch, capsys):
    def read_only(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    monkeypatch.setattr("smct_paper.experiments.runner.run_grid", lambda *_, **__: pytest.fail("the work had begun"))
    assert cli.main(["experiment", "run", "synthetic", "--model", "naive", "--out", str(tmp_path / "results")]) == 1
    assert "cannot be written: no file can be made in" in capsys.readouterr().err


def test_a_list_that_is_no_results_is_not_replaced(tmp_path, capsys):
    (tmp_path / "results.json").write_text("[1]\n")
    assert cli.main(["experiment", "run", "synthetic", "--model", "naive", "--out", str(tmp_path)]) == 1
    assert "choose another --out" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_text() == "[1]\n"


def test_a_run_goes_on_from_results_without_their_cells(command):
    """As committed results are: the same command makes what is missing only, and loses nothing."""
    chosen = ("run", "synthetic", "--dataset", "model1", "--model", "plain", "slow")
    assert command.run(*chosen, "--seeds", "2", seconds=0.0)[0] == 0
    before, noted = json.loads((command.out / "results.json").read_text()), command.noted()
    for path in command.finished():
        path.unlink()
    (command.out / "cells").rmdir()
    code, out, err = command.run(*chosen, "--seeds", "3", seconds=0.0)
    assert code == 0, err
    assert "4 cells are made from" in out
    assert len(command.noted()) == len(noted) + 2  # the third fold of each model
    after = json.loads((command.out / "results.json").read_text())
    assert [row for row in after if row["fold"] < 2] == before


def test_a_run_that_was_stopped_before_its_first_cell_goes_on(tmp_path):
    store = Store(tmp_path)
    store.assemble()
    assert not store.has_lost_its_cells
