"""Kernels that came with a wheel: the best that the processor can run, from the sources that are here."""

import importlib
import logging
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from smc_transformer.kernels import building, levels, library

loader = importlib.import_module("smc_transformer.kernels.library")

LOADER = Path("/lib64/ld-linux-x86-64.so.2")
LIKE = torch.empty(0)


def cpuinfo(monkeypatch, flags):
    read = Path.read_text
    line = f"processor\t: 0\nflags\t\t: {' '.join(sorted(flags))}\n"
    monkeypatch.setattr(Path, "read_text", lambda path: line if path.name == "cpuinfo" else read(path))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.mark.skipif(not LOADER.exists(), reason="only the loader of glibc for x86-64 says which levels it supports")
def test_levels_are_those_that_the_loader_of_the_system_finds():
    lines = subprocess.run([LOADER, "--help"], capture_output=True, text=True, check=True).stdout.splitlines()
    named = [line.split() for line in lines if line.strip().startswith("x86-64-v")]
    if not named:
        pytest.skip("a loader from before glibc 2.33")
    assert levels.reached() == [words[0] for words in named if "(supported," in words]


def test_a_level_is_reached_with_all_that_it_needs(monkeypatch):
    everything = levels.LEVELS["x86-64-v4"] | {"and", "more"}
    cpuinfo(monkeypatch, everything)
    assert levels.reached() == ["x86-64-v4", "x86-64-v3", "x86-64-v2"]
    for missing, expected in (("avx512vl", ["x86-64-v3", "x86-64-v2"]), ("bmi2", ["x86-64-v2"]), ("sse4_1", [])):
        cpuinfo(monkeypatch, everything - {missing})
        assert levels.reached() == expected


def test_other_machines_reach_none(monkeypatch):
    cpuinfo(monkeypatch, levels.LEVELS["x86-64-v4"])
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert levels.reached() == []


@pytest.fixture(scope="module")
def quick_library(tmp_path_factory):
    compiler = building.c_compiler()
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    made = tmp_path_factory.mktemp("quick") / "made.so"
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(building, "FLAGS", (*building.FLAGS, "-O0"))
        building.build(compiler, "float", (), made)
    return made


@pytest.fixture
def wheel(tmp_path, monkeypatch, quick_library):
    """As if installed by a wheel, where no compiler is: adds a library to the wheel."""
    folder = tmp_path / "kernels"
    shutil.copytree(building.FOLDER, folder, ignore=shutil.ignore_patterns("built", "__pycache__"))
    built = folder / "built"
    built.mkdir()
    monkeypatch.setattr(building, "FOLDER", folder)
    monkeypatch.setattr(levels, "reached", lambda: ["x86-64-v3", "x86-64-v2"])
    monkeypatch.setenv("CC", "no such compiler")
    importlib.reload(loader)

    def add(level):
        return shutil.copy(quick_library, built / f"kernels-float-{level}-{building.digest()}.so")

    yield add
    monkeypatch.undo()
    importlib.reload(loader)


def test_the_best_level_of_the_processor_is_taken(wheel, caplog):
    wheel("x86-64-v2"), wheel("x86-64-v4")
    best = wheel("x86-64-v3")
    assert library(LIKE)._name == str(best)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_library_that_does_not_load_gives_way_to_the_next(wheel, caplog):
    caplog.set_level(logging.INFO, logger=loader.__name__)
    next_best = wheel("x86-64-v2")
    Path(wheel("x86-64-v3")).write_bytes(b"no library")
    assert library(LIKE)._name == str(next_best)
    assert "a library of the wheel is not used" in caplog.text


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_library_gives_way_to_the_next(wheel, caplog, share):
    """Loaded, it would end the process with SIGBUS."""
    caplog.set_level(logging.INFO, logger=loader.__name__)
    next_best, best = wheel("x86-64-v2"), Path(wheel("x86-64-v3"))
    os.truncate(best, int(share * best.stat().st_size))
    assert library(LIKE)._name == str(next_best)
    assert "a library of the wheel is not used" in caplog.text


def test_a_wheel_without_a_library_for_the_processor_leaves_it_to_the_compiler(wheel):
    wheel("x86-64-v4")
    assert library(LIKE) is None
    assert loader.find(LIKE) == "no C compiler was found"


def test_libraries_of_other_sources_are_not_used(wheel):
    wheel("x86-64-v3")
    source = building.FOLDER / "filter.c"
    source.write_text(source.read_text() + "\n/* changed */\n")
    assert library(LIKE) is None


@pytest.mark.skipif(sys.platform != "linux", reason="building.py and levels.py are for Linux")
@pytest.mark.parametrize("module", [building, levels])
def test_the_build_needs_no_package(module):
    """In the environment where a wheel is built there is hatchling and nothing else."""
    code = f"import runpy; runpy.run_path({str(module.__file__)!r})"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
