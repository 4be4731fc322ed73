"""A loss of power: whatever was not flushed to the disk is gone, and no answered line with it.

A library that is preloaded into `smct stream` keeps each file as it was when it was last flushed (power_cut.c). The
folder after the cut is made of these; of what was written since, nothing is there, or some of the pages.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_tables import json_lines, waves

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.live import Service

PAGE = 4096


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    path = tmp_path_factory.mktemp("shim") / "power_cut.so"
    source = Path(__file__).parent / "power_cut.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(path), "-ldl"], check=True)
    return path


def flushed(folder, kept, chance=None):
    """The folder as the disk has it: what was flushed, and with `chance` some of the pages that were not."""
    names = dict(reversed(line.split(" ", 1)) for line in (kept / "names").read_text().splitlines())
    after = folder.parent / f"{folder.name}-after"
    shutil.rmtree(after, ignore_errors=True)
    after.mkdir()
    for name, inode in names.items():
        on_disk = kept / "files" / inode
        data = bytearray(on_disk.read_bytes() if on_disk.exists() else b"")
        current = folder / name
        if chance is not None and current.exists() and str(current.stat().st_ino) == inode:
            written = current.read_bytes()
            for start in range(0, len(written), PAGE):
                if chance.random() < 0.5:
                    data += bytes(max(0, start - len(data)))  # a hole
                    data[start : start + PAGE] = written[start : start + PAGE]
        (after / name).write_bytes(data)
    return after


@pytest.mark.parametrize("n_answers", [1, 6, 11])
def test_answered_lines_survive_a_loss_of_power(shim, trained, tmp_path, n_answers):
    folder, kept = shutil.copytree(trained / "model", tmp_path / "model"), tmp_path / "kept"
    (kept / "files").mkdir(parents=True)
    for path in folder.iterdir():  # what was there before is on the disk
        shutil.copy(path, kept / "files" / str(path.stat().st_ino))
    (kept / "names").write_text("".join(f"{path.stat().st_ino} {path.name}\n" for path in folder.iterdir()))
    table = waves(92, 60)
    lines = json_lines(table[(table["unique_id"] == "a") & (table.groupby("unique_id").cumcount() >= 80)]).encode()
    command = [sys.executable, "-m", "smc_transformer.cli", "stream", str(folder), "--paths", "5", "--save-every", "4"]
    watched = {**os.environ, "LD_PRELOAD": str(shim), "POWER_CUT": str(kept), "POWER_CUT_FOLDER": str(folder)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=watched)
    answers = []
    for line in lines.splitlines(keepends=True)[:n_answers]:
        process.stdin.write(line)
        process.stdin.flush()
        answers.append(json.loads(process.stdout.readline()))
    process.kill()
    process.communicate()
    expected = Forecaster.load(folder).predict(n_paths=5)["y"].tolist()
    for chance in (None, *map(random.Random, range(6))):
        after = flushed(folder, kept, chance)
        assert Forecaster.load(after).predict(n_paths=5)["y"].tolist() == expected
        service = Service(after, n_paths=5)
        assert service.n_taken == n_answers
        assert service.last_answers == (answers[-1],)
        service.close()


def test_what_was_not_flushed_is_gone_in_this_simulation(shim, tmp_path):
    """Otherwise the test above could not fail."""
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    (kept / "files").mkdir(parents=True)
    program = """
import os, sys
file = open(sys.argv[1] + "/a", "wb", buffering=0)
file.write(b"flushed")
os.fsync(file.fileno())
os.fsync(os.open(sys.argv[1], os.O_RDONLY))
file.write(b", not flushed")
open(sys.argv[1] + "/b", "wb").write(b"no name")
"""
    watched = {**os.environ, "LD_PRELOAD": str(shim), "POWER_CUT": str(kept), "POWER_CUT_FOLDER": str(folder)}
    subprocess.run([sys.executable, "-c", program, str(folder)], env=watched, check=True)
    after = flushed(folder, kept)
    assert {path.name: path.read_bytes() for path in after.iterdir()} == {"a": b"flushed"}
