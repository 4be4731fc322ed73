"""The cache of the kernels: only what this user has written there, and as it was written, is executed."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from smc_transformer.kernels import library

SCRIPT = """
import importlib, sys, torch
loader = importlib.import_module("smc_transformer.kernels.library")
found = loader.find(torch.empty(0))
print(found if isinstance(found, str) else found._name)
out = torch.empty(1000)
from smc_transformer.kernels.noise import fill_normal
fill_normal(out, None)
assert 0.8 < float(out.std()) < 1.2
"""

PLANTED = "#include <stdlib.h>\n__attribute__((constructor)) static void planted(void) { _Exit(66); }\n"


@pytest.fixture(scope="module", autouse=True)
def with_compiler():
    # Both, now: while `filled` has its compiler in CC, this process would take what that makes for doubles.
    if None in (library(torch.empty(0)), library(torch.empty(0, dtype=torch.float64))):
        pytest.skip("there are no kernels on this machine")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache with the kernels, as a process has made it."""
    folder = tmp_path_factory.mktemp("filled") / "cache" / "kernels"
    with pytest.MonkeyPatch.context() as patch:
        # A compiler that is done at once: the kernels of this machine are what it makes.
        made = Path(library(torch.empty(0))._name)
        quick = tmp_path_factory.mktemp("compiler") / "compiler"
        quick.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {made} "$2"\n')
        quick.chmod(0o755)
        patch.setenv("CC", str(quick))
        done = run(folder)
        assert done.returncode == 0, done.stderr
        yield folder


@pytest.fixture
def cache(filled, tmp_path):
    return shutil.copytree(filled, tmp_path / "cache" / "kernels")


def run(cache):
    """A new process that asks for the kernels and uses them."""
    environment = {**os.environ, "SMC_TRANSFORMER_CACHE": str(cache.parent), "SMC_TRANSFORMER_KERNELS": "on"}
    return subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A library that ends every process that loads it."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "planted.c").write_text(PLANTED)
    command = ["cc", "-shared", "-fPIC", str(folder / "planted.c"), "-o", str(folder / "planted.so")]
    subprocess.run(command, check=True)
    return folder / "planted.so"


def only(cache):
    (path,) = cache.glob("*.so")
    return path


def named_after_its_contents(path, original):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return original.with_name(f"{original.stem.rpartition('-')[0]}-{digest}.so")


def test_the_kernels_of_the_cache_are_used(cache):
    done = run(cache)
    assert (done.returncode, done.stdout.strip()) == (0, str(only(cache))), done.stderr
    assert "compiling" not in done.stderr


def test_a_truncated_library_is_made_again(cache):
    """Once a SIGBUS, again and again."""
    path = only(cache)
    os.truncate(path, path.stat().st_size // 2)
    done = run(cache)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(only(cache).read_bytes()).hexdigest() in only(cache).name


def test_a_library_with_other_contents_than_its_name_says_is_not_executed(cache, planted):
    shutil.copy(planted, only(cache))
    done = run(cache)
    assert done.returncode == 0, done.stderr
    assert only(cache).stat().st_size != planted.stat().st_size


def test_a_link_is_not_followed(cache, planted, tmp_path):
    path = only(cache)
    path.unlink()
    os.symlink(planted, named_after_its_contents(planted, path))
    done = run(cache)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_belongs_to_another_user_is_not_executed(cache, planted, what):
    path = only(cache)
    path.unlink()
    stranger = named_after_its_contents(planted, path)
    shutil.copy(planted, stranger)
    os.chown(stranger if what == "file" else cache, 65534, 65534)
    done = run(cache)
    assert done.returncode == 0, done.stderr
    if what == "folder":
        assert "belongs to another user" in done.stderr
        assert list(cache.iterdir()) == [stranger]  # nothing was written there


def test_what_others_can_write_is_not_executed(cache, planted):
    path = only(cache)
    path.unlink()
    stranger = named_after_its_contents(planted, path)
    shutil.copy(planted, stranger)
    stranger.chmod(0o777)
    done = run(cache)
    assert done.returncode == 0, done.stderr


def test_a_cache_that_others_can_write_is_closed_to_them(cache):
    cache.chmod(0o777)
    done = run(cache)
    assert done.returncode == 0, done.stderr
    assert cache.stat().st_mode & 0o777 == 0o700


def test_new_caches_and_libraries_are_the_users_own(filled, tmp_path):
    before = os.umask(0)
    try:
        done = run(tmp_path / "cache" / "kernels")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "smc-transformer: compiling the kernels for this machine, once\n"  # it takes seconds
    folder = tmp_path / "cache" / "kernels"
    assert folder.stat().st_mode & 0o077 == 0
    assert only(folder).stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("what", ["all may write above it", "it lies in another user's folder"])
def test_a_cache_that_another_user_could_replace_is_not_used(cache, what):
    """Whoever can write to the folder above can put another one in its place while a library is made."""
    if what == "all may write above it":
        cache.parent.chmod(0o777)
    elif os.geteuid() != 0:
        pytest.skip("only root can give files away")
    else:
        os.chown(cache.parent, 12345, 12345)
    before = sorted(cache.iterdir())
    done = run(cache)
    assert done.returncode == 0, done.stderr
    assert (
        f"{cache.parent} {'can be written by all' if what.startswith('all') else 'belongs to another'}" in done.stderr
    )
    assert not done.stdout.startswith(str(cache))
    assert sorted(cache.iterdir()) == before


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes mean nothing here")
def test_a_cache_in_a_folder_where_all_may_write_what_is_theirs_is_used(cache):
    cache.parent.chmod(0o1777)  # as /tmp is: nobody can rename what belongs to another
    done = run(cache)
    assert (done.returncode, done.stdout.strip()) == (0, str(only(cache))), done.stderr


@pytest.mark.parametrize("chosen", ['gcc "', "gcc '", "\\"])
def test_a_compiler_that_cannot_be_read_is_none(cache, chosen):
    script = "import torch; from smc_transformer.kernels import library; print(library(torch.empty(0)))"
    environment = {**os.environ, "SMC_TRANSFORMER_CACHE": str(cache.parent), "CC": chosen}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "None"), done.stderr
    assert "CC cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_float_and_double_are_two_libraries():
    """The loader knows libraries by name: two that were opened under one number would be one."""
    kernels = [library(torch.empty(0, dtype=kind)) for kind in (torch.float32, torch.float64)]
    addresses = {ctypes.cast(one.particle_filter, ctypes.c_void_p).value for one in kernels}
    assert len(addresses) == 2
