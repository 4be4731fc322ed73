"""A wheel brings its kernels: built from the source distribution, installed where no compiler is, used.

The compiler is in a hurry (-O1). `make test-wheel` builds a real one, installs it into an empty environment, and says
how fast its kernels are (tests/wheel/run).
"""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from helpers.command_tables import QUICK

from smc_transformer.kernels import building, levels

ROOT = Path(__file__).parents[1]
COMPILER = building.c_compiler()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="such wheels are for Linux"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine"),
]

KERNELS_AGAINST_TORCH = """
import torch
from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.inference import engine
from smc_transformer.kernels import disabled, library

for dtype in (torch.float32, torch.float64):
    print(library(torch.empty(0, dtype=dtype))._name)
    model = SMCTransformer(SMCTransformerConfig(n_inputs=1, n_targets=1), generator=0).to(dtype)
    x = torch.randn(3, 12, 1, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert engine.explain_filter(model, model.inference, x) == []
    found = model.filter(x, 7, generator=1).log_likelihood
    with disabled():
        expected = model.filter(x, 7, generator=1).log_likelihood
    if dtype == torch.float64:  # float32 noise is another with the kernels
        torch.testing.assert_close(found, expected)
    assert found.isfinite().all()
"""

TABLE = "unique_id,ds,y\n" + "".join(
    f"{shop},2024-{1 + day // 28:02d}-{1 + day % 28:02d},{10 + day % 7}\n" for shop in "ab" for day in range(84)
)


def hatchling(arguments, folder, compiler):
    command = [sys.executable, "-m", "hatchling", "build", *arguments]
    environment = {**os.environ, "CC": str(compiler)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sources")
    hatchling(["-t", "sdist", "-d", str(folder)], ROOT, "cc")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    compiler = folder / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\nexec {" ".join(COMPILER)} "$@" -O1\n')
    compiler.chmod(0o755)
    hatchling(["-t", "wheel", "-d", str(folder)], sources, compiler)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """Runs a program of an environment that has the wheel: without a compiler, a cache, or this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "env"), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    shared = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "shared.pth").write_text("\n".join(shared))  # torch and the others, installed once for all
    (folder / "empty").mkdir()
    environment = {"PATH": str(folder / "empty"), "HOME": str(folder), "SMC_TRANSFORMER_CACHE": str(folder / "cache")}
    environment["OMP_NUM_THREADS"] = "1"

    def run(program, *arguments):
        command = [str(folder / "env" / "bin" / program), *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "compiler" not in done.stderr
        assert not (folder / "cache" / "kernels").exists()  # nothing was compiled
        return done.stdout

    run.packages = packages
    run.folder = folder
    return run


def test_the_wheel_has_kernels_for_every_level_and_says_for_which_platform(wheel):
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    assert wheel.stem.endswith("_x86_64")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    built = [Path(name).stem for name in names if name.startswith("smc_transformer/kernels/built/")]
    expected = [f"kernels-{number}-{level}" for level in levels.LEVELS for number in ("float", "double")]
    assert sorted(name.rpartition("-")[0] for name in built) == sorted(expected)
    assert {f"smc_transformer/kernels/{name}" for name in (*building.SOURCES, *building.HEADERS)} <= set(names)


def test_the_tag_is_that_of_the_symbols(wheel):
    """As binutils read them."""
    if shutil.which("objdump") is None:
        pytest.skip("needs objdump")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(wheel.parent / "unpacked")
    needed, versions = set(), set()
    for path in (wheel.parent / "unpacked").rglob("*.so"):
        lines = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout.splitlines()
        needed |= {line.split()[1] for line in lines if "NEEDED" in line}
        versions |= {line.split("GLIBC_")[1] for line in lines if "GLIBC_" in line}
    major, minor = max(tuple(map(int, version.split(".")[:2])) for version in versions)
    assert wheel.stem.endswith(f"-manylinux_{major}_{minor}_x86_64")
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0"}  # in particular no OpenMP beside that of torch


def test_kernels_are_made_with_every_flag(wheel):
    calls = (wheel.parent / "calls").read_text().splitlines()
    for level in levels.LEVELS:
        compiled = [call.split() for call in calls if f" -march={level} " in call]
        assert len(compiled) == 2 * len(building.SOURCES)
        assert all(set(building.FLAGS) <= set(call) for call in compiled)


def test_kernels_of_the_wheel_are_used(run):
    names = [Path(line) for line in run("python", "-c", KERNELS_AGAINST_TORCH).splitlines()]
    assert {path.parent for path in names} == {run.packages / "smc_transformer" / "kernels" / "built"}
    best = levels.reached()[0]
    assert [path.name.rpartition("-")[0] for path in names] == [f"kernels-float-{best}", f"kernels-double-{best}"]


def test_the_shell_fits_and_predicts(run):
    (run.folder / "sales.csv").write_text(TABLE)
    run("smct", "fit", "sales.csv", "--out", "model", *QUICK)
    lines = run("smct", "predict", "model", "--level", "80").splitlines()
    assert lines[0] == "unique_id,ds,y,y-lo-80,y-hi-80"
    assert len(lines) == 1 + 2 * 4


def test_without_a_compiler_the_wheel_is_for_all_platforms(sources, tmp_path):
    done = hatchling(["-t", "wheel", "-d", str(tmp_path)], sources, "no_such_compiler")
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-any.whl")
    assert "no C compiler was found" in done.stdout + done.stderr
