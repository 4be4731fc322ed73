"""Compiling and loading the kernels: once, kept for the next time, and never in the way of the work."""

import ctypes
import importlib
import logging
import os
import shlex
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from helpers.agreement import assert_same, random_model
from helpers.models import sequences

from smc_transformer.inference import engine
from smc_transformer.kernels import building, disabled, library, threads_for_kernels
from smc_transformer.kernels.structures import STRUCTURES

loader = importlib.import_module("smc_transformer.kernels.library")  # the package has a function of that name

SINGLE, DOUBLE = torch.empty(0), torch.empty(0, dtype=torch.float64)
NAME = "smc_transformer.kernels.library"
IN_TORCH = "the particle filter runs in torch, several times slower"


@pytest.fixture
def fresh(monkeypatch, tmp_path, caplog):
    """As in a new process that has its cache in a folder of its own: the module is run again."""
    monkeypatch.setenv("SMC_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SMC_TRANSFORMER_KERNELS", "on")
    caplog.set_level(logging.INFO, logger=NAME)
    importlib.reload(loader)
    yield lambda: importlib.reload(loader)
    monkeypatch.undo()
    importlib.reload(loader)


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Makes a compiler that writes down its calls, refuses what it is told to, and is in a hurry otherwise."""
    real = building.c_compiler()
    if real is None:
        pytest.skip("no C compiler on this machine")
    path, log = tmp_path / "compiler", tmp_path / "calls"

    def make(refuses="nothing at all", instead="exit 1"):
        path.write_text(
            f'#!/bin/sh\necho "$@" >> {log}\ncase " $* " in *"{refuses}"*) {instead};; esac\n'
            f'exec {shlex.join(real)} "$@" -O0\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("CC", str(path))
        return lambda: log.read_text().splitlines() if log.exists() else []

    return make


def messages(caplog, level):
    return [record.getMessage() for record in caplog.records if record.name == NAME and record.levelno == level]


def assert_torch_does_the_work():
    """A model filters, learns and forecasts as it does with kernels disabled."""
    model, x = random_model(d_model=4, d_ff=5, window=2), sequences(2, 5)
    result, paths = model.filter(x, 5, generator=0), model.forecast(x, 3, 5, generator=0)
    with disabled():
        assert torch.equal(result.log_weights, model.filter(x, 5, generator=0).log_weights)
        assert torch.equal(paths, model.forecast(x, 3, 5, generator=0))
    assert engine.explain_filter(model, model.inference, x) == [f"step by step: {loader.find(DOUBLE)}"]


# --- no kernels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["path", "chosen"])
def test_without_a_compiler_torch_does_the_work(missing, fresh, monkeypatch, tmp_path, caplog):
    if missing == "path":
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setenv("CC", str(tmp_path / "nothing here") + " -m64")
    assert library(DOUBLE) is None
    assert_torch_does_the_work()
    assert loader.find(DOUBLE) == "no C compiler was found"
    assert messages(caplog, logging.WARNING) == [f"no C compiler found (CC, cc, gcc or clang): {IN_TORCH}"]


def test_a_compiler_that_fails_leaves_the_work_to_torch(fresh, compiler, tmp_path, caplog):
    calls = compiler(refuses=" ", instead="echo it is broken >&2; exit 1")
    assert library(DOUBLE) is None
    assert loader.find(DOUBLE) == "the kernels could not be compiled"
    assert len(calls()) == len(loader.ATTEMPTS)  # each of them was tried, once
    assert messages(caplog, logging.WARNING) == [
        f"the kernels could not be compiled with {tmp_path / 'compiler'}: {IN_TORCH}"
    ]
    (complaints,) = messages(caplog, logging.INFO)
    assert complaints.count("it is broken") == len(loader.ATTEMPTS)
    assert_torch_does_the_work()
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_what_does_not_load_is_not_kept(fresh, compiler, tmp_path, caplog):
    """A linker that makes an empty file and says that all is well."""
    calls = compiler(refuses=" -shared ", instead='while [ "$1" != -o ]; do shift; done; : > "$2"; exit 0')
    assert library(DOUBLE) is None
    assert len(messages(caplog, logging.WARNING)) == 1
    assert len(calls()) == len(loader.ATTEMPTS) * (len(building.SOURCES) + 1)
    assert not list((tmp_path / "cache").rglob("*.so"))
    assert not list((tmp_path / "cache" / "kernels").iterdir())  # nor anything else


@pytest.mark.parametrize(
    ("like", "name"),
    [
        (torch.empty(0, dtype=torch.bfloat16), "bfloat16 on cpu"),
        (torch.empty(0, dtype=torch.float16), "float16 on cpu"),
        (torch.empty(0, dtype=torch.long), "int64 on cpu"),
        (torch.empty(0, device="meta"), "float32 on meta"),
    ],
)
def test_other_types_and_devices_have_no_kernels(like, name, fresh, caplog):
    assert library(like) is None
    assert loader.find(like) == f"numbers are {name}"
    assert messages(caplog, logging.WARNING) == []


def test_kernels_can_be_switched_off_from_outside():
    """Read when the package is imported; nothing is compiled then, and nothing asked for."""
    script = (
        "import importlib, os, torch\n"
        "values = ('off', '0', 'no', 'False', 'OFF', 'on', '1', None)\n"
        "module = importlib.import_module('smc_transformer.kernels.library')\n"
        "assert module.find(torch.empty(1)) == 'kernels are switched off'\n"
        "for value in values:\n"
        "    os.environ.pop('SMC_TRANSFORMER_KERNELS') if value is None else "
        "os.environ.update(SMC_TRANSFORMER_KERNELS=value)\n"
        "    module = importlib.reload(module)\n"
        "    print(value, module.find(torch.empty(1)))\n"
    )
    environment = {**os.environ, "SMC_TRANSFORMER_KERNELS": "off", "CC": "no such compiler"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    off = [f"{value} kernels are switched off" for value in ("off", "0", "no", "False", "OFF")]
    on = [f"{value} no C compiler was found" for value in ("on", "1", None)]
    assert done.stdout.splitlines() == [*off, *on]


@disabled()
def fail():
    raise ValueError(f"on purpose, with {library(SINGLE)}")


def test_a_disabled_block_ends_also_by_an_error():
    before = library(SINGLE)
    with pytest.raises(ValueError, match="on purpose, with None"):
        fail()
    assert library(SINGLE) is before


@pytest.mark.parametrize("mirror", STRUCTURES)
def test_a_mirror_that_does_not_fit_its_structure_in_c_is_an_error(mirror, fresh, compiler, monkeypatch):
    class Longer(ctypes.Structure):
        _fields_ = [*mirror._fields_, ("more", ctypes.c_int64)]

    Longer.__name__ = mirror.__name__
    compiler()
    monkeypatch.setattr(loader, "STRUCTURES", (Longer,))
    size = ctypes.sizeof(mirror)
    with pytest.raises(RuntimeError, match=f"structure {mirror.__name__} has {size} bytes in C, but {size + 8} in"):
        library(SINGLE)


# --- the cache ----------------------------------------------------------------------------------------------


def test_kernels_are_compiled_once_and_kept_in_the_cache(fresh, compiler, tmp_path, caplog):
    calls = compiler()
    assert library(SINGLE) is not None
    assert library(SINGLE) is library(SINGLE)
    once = len(calls())
    assert once == len(building.SOURCES) + 1
    (kept,) = (tmp_path / "cache" / "kernels").iterdir()
    assert kept.suffix == ".so"
    fresh()
    assert library(SINGLE)._name == str(kept)
    assert len(calls()) == once
    assert library(DOUBLE)._name != str(kept)  # another type is another library
    assert len(calls()) == 2 * once
    assert messages(caplog, logging.WARNING) == []


def test_whatever_the_machine_code_depends_on_is_part_of_its_name(fresh, compiler, monkeypatch, tmp_path):
    """Nobody may get a library from the cache that was made of other sources, in another way or for another machine."""
    compiler()
    made = shutil.copy(library(SINGLE)._name, tmp_path / "made.so")
    # From here on a compiler that is done at once.
    compiler(refuses=" ", instead=f'while [ "$1" != -o ]; do shift; done; cp {made} "$2"; exit 0')
    folder = tmp_path / "sources"
    shutil.copytree(Path(loader.__file__).parent, folder)

    def name(like=SINGLE, **changes):
        fresh()
        for part, value in changes.items():
            monkeypatch.setattr(loader, part, value)
        return library(like)._name

    monkeypatch.setattr(building, "FOLDER", folder)
    one_way = {"ATTEMPTS": (("-march=native",),)}
    names = [name(**one_way), name(DOUBLE, **one_way)]
    names += [name(ATTEMPTS=((),)), name(ATTEMPTS=(("-march=native", "-g"),))]
    with monkeypatch.context() as changed:
        changed.setattr(building, "FLAGS", ("-O1",))
        names.append(name(**one_way))
    assert name(**one_way) == names[0]
    for source in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        source.write_text(source.read_text() + "\n/* changed */\n")
        names.append(name(**one_way))
    monkeypatch.setenv("CC", os.environ["CC"] + " -DANOTHER")
    names.append(name(**one_way))
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: "flags: another" if path.name == "cpuinfo" else read(path))
    names.append(name(**one_way))
    monkeypatch.setattr(loader.platform, "machine", lambda: "another")
    names.append(name(**one_way))
    assert len(set(names)) == len(names) >= 5 + len(building.SOURCES) + len(building.HEADERS) + 3


def test_a_cache_that_cannot_be_written_to_is_done_without(fresh, compiler, monkeypatch, tmp_path, caplog):
    """A file is where the folder should be, which stops even an administrator."""
    calls = compiler()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SMC_TRANSFORMER_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(loader.tempfile, "tempdir", str(tmp_path))
    kernels = library(SINGLE)
    assert kernels is not None
    assert kernels._name.startswith(str(tmp_path / "smc-transformer-kernels-"))
    assert len(calls()) == len(building.SOURCES) + 1
    assert messages(caplog, logging.WARNING) == []
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_cache_without_permission_to_write_is_done_without(fresh, compiler, monkeypatch, tmp_path):
    compiler()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    monkeypatch.setattr(loader.tempfile, "tempdir", str(tmp_path))
    folders = {Path(library(like)._name).parent for like in (SINGLE, DOUBLE)}
    assert [folder.name.startswith("smc-transformer-kernels-") for folder in folders] == [True]


# --- compilers that can do less -----------------------------------------------------------------------------


def test_a_compiler_without_native_code_makes_kernels_all_the_same(fresh, compiler, caplog):
    refuses = " -march=native "
    calls = compiler(refuses=refuses)
    model, x = random_model(d_model=5, d_ff=4, window=3), sequences(2, 5)
    with disabled():
        expected = model.filter(x, 5, generator=0)
    result = model.filter(x, 5, generator=0)
    assert_same(result.log_weights, expected.log_weights)
    assert library(DOUBLE) is not None
    assert refuses not in calls()[-2]
    assert messages(caplog, logging.WARNING) == []


def test_the_compiler_that_was_chosen_may_have_options(fresh, compiler, monkeypatch):
    calls = compiler()
    monkeypatch.setenv("CC", os.environ["CC"] + " -DCHOSEN='a word'")
    assert library(SINGLE) is not None
    assert all("-DCHOSEN=a word" in call for call in calls())


# --- threads ------------------------------------------------------------------------------------------------


def test_kernels_have_as_many_threads_as_torch(calls, set_threads):
    model, x = random_model(d_model=4, d_ff=5), sequences(2, 5)
    for n_threads in (1, 2):
        set_threads(n_threads)
        calls.threads.clear()
        model.forecast(x, 3, 5, generator=0)
        assert calls.threads == {n_threads}
    assert calls == {"particle_filter": 2, "draw_paths": 2}


def test_kernels_keep_their_threads_while_torch_has_one(calls, set_threads):
    model, x = random_model(d_model=4, d_ff=5), sequences(2, 5)
    set_threads(2)
    with threads_for_kernels():
        assert torch.get_num_threads() == 1
        with threads_for_kernels():
            model.filter(x, generator=0)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    assert calls.threads == {2}


def test_a_child_process_has_a_pool_of_its_own(set_threads):
    """After a fork the threads of the parent are gone: a child that waited for them would wait for ever."""
    model, x = random_model(d_model=4, d_ff=5), sequences(6, 5)
    set_threads(3)
    expected = model.filter(x, generator=0).log_weights
    code = os.fork()
    if code == 0:  # in the child: no test runner, whatever happens
        found = model.filter(x, generator=0).log_weights
        os._exit(0 if torch.equal(found, expected) else 1)
    assert os.waitpid(code, 0)[1] == 0
    assert torch.equal(model.filter(x, generator=0).log_weights, expected)


def test_threads_of_a_program_share_the_pool(set_threads):
    """One of them has it, the others work alone, and all find the same."""
    model, x = random_model(d_model=4, d_ff=5), sequences(6, 40)
    set_threads(3)
    expected, found = model.filter(x, generator=0).log_weights, []
    workers = [
        threading.Thread(target=lambda: found.append(model.filter(x, generator=0).log_weights)) for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert len(found) == 8
    assert all(torch.equal(one, expected) for one in found)


def test_small_tasks_do_not_wake_threads(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    enough = loader.WORK_OF_A_THREAD
    assert [loader.threads(work) for work in (0, 1, enough, 2 * enough, 3 * enough)] == [1, 1, 1, 2, 3]
    assert loader.threads(100 * enough) == 4
