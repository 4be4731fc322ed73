"""Load the kernels: those that came with the wheel, or those that the machine's C compiler makes, once.

A wheel has libraries for several levels of processors in the folder built/; they are trusted as the Python files beside
them are. Installed from the sources in place, or on another machine, there are none, and the compiler is asked.

A library in the cache is executed, so it must be the user's own and as it was written: its name ends with the SHA-256
of its contents, and it lies in a folder that nobody else can write to (cache.py). Any other is removed and made again.
"""

import atexit
import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import torch

from smc_transformer.kernels import building, levels
from smc_transformer.kernels.cache import UnsafeCacheError, cache_folder, private_folder, verified
from smc_transformer.kernels.structures import STRUCTURES

logger = logging.getLogger(__name__)

NUMBERS = {torch.float32: "float", torch.float64: "double"}
ATTEMPTS = (("-march=native",), ())
"""Flags beside these, best first; what compiles and loads is taken."""

WORK_OF_A_THREAD = 500_000
"""Multiplications from which on it pays to wake a thread: a few times what the waking takes."""

_own = threading.local()  # of each of Python's threads, as torch's number of threads is: what kernels may use
_enabled = os.environ.get("SMC_TRANSFORMER_KERNELS", "on").lower() not in ("off", "0", "no", "false")


def find(like: torch.Tensor) -> ctypes.CDLL | str:
    """The kernels for numbers like these, or the reason why there are none and torch has to do the work."""
    if not _enabled:
        return "kernels are switched off"
    if like.device.type != "cpu" or like.dtype not in NUMBERS:
        return f"numbers are {str(like.dtype).removeprefix('torch.')} on {like.device.type}"
    return _load(NUMBERS[like.dtype])


def library(like: torch.Tensor) -> ctypes.CDLL | None:
    """The kernels for numbers like these, or None where torch has to do the work."""
    found = find(like)
    return None if isinstance(found, str) else found


def loaded(like: torch.Tensor) -> ctypes.CDLL:
    """The kernels for numbers like these, for those who have asked before whether there are any."""
    found = find(like)
    if isinstance(found, str):
        raise RuntimeError(f"there are no kernels: {found}")
    return found


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Within this block torch does all the work: the reference that the kernels are tested against."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def threads(work: int) -> int:
    """How many threads so many multiplications are worth: never more than torch is allowed to use."""
    return max(1, min(getattr(_own, "n_threads", None) or torch.get_num_threads(), work // WORK_OF_A_THREAD))


@contextlib.contextmanager
def threads_for_kernels() -> Iterator[None]:
    """Within this block the kernels have the threads that torch was allowed, and torch's own operations one.

    For work that is mostly theirs: on a busy machine torch's threads wait, spinning, for one another, which may make
    small operations a hundred times slower. The kernels' threads do not (pool.c).
    """
    before, n_threads = getattr(_own, "n_threads", None), torch.get_num_threads()
    _own.n_threads = before or n_threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
        _own.n_threads = before


def check(failed: int) -> None:
    """Raise what a kernel reports."""
    if failed:
        raise MemoryError("a kernel of the particle filter could not get the memory it needs")


@functools.cache
def _load(number: str) -> ctypes.CDLL | str:
    kernels = _from_the_wheel(number) or _from_the_compiler(number)
    if not isinstance(kernels, str):
        _check_sizes(kernels)
    return kernels


def _from_the_wheel(number: str) -> ctypes.CDLL | None:
    """The library for the best level that this processor reaches, made from the sources that are here."""
    folder = building.FOLDER / "built"
    if not folder.is_dir():
        return None
    made_from = building.digest()
    for level in levels.reached():
        path = folder / f"kernels-{number}-{level}-{made_from}.so"
        try:
            _check_whole(path)
            return ctypes.CDLL(str(path))
        except OSError as error:
            logger.info("a library of the wheel is not used: %s", error)
    return None


def _check_whole(path: Path) -> None:
    """Raise an OSError for a library whose end is missing: the loader would touch pages that are not in the file.

    The table of sections lies at its end; where that is, the first bytes of the format ELF say, of 64 bits.
    """
    with path.open("rb") as file:
        head, size = file.read(64), os.fstat(file.fileno()).st_size
    if len(head) < 64 or head[:5] != b"\x7fELF\x02":
        raise OSError(f"{path} is no library")
    (begins,), (size_of_one, n_sections) = struct.unpack_from("<Q", head, 40), struct.unpack_from("<2H", head, 58)
    if size < begins + size_of_one * n_sections:
        raise OSError(f"{path} is truncated")


def _from_the_compiler(number: str) -> ctypes.CDLL | str:
    """A library for this very processor, or the reason why there is none."""
    compiler = building.c_compiler()
    if compiler is None:
        logger.warning(
            "no C compiler found (CC, cc, gcc or clang): the particle filter runs in torch, several times slower"
        )
        return "no C compiler was found"
    complaints = []
    for flags in ATTEMPTS:
        try:
            return _compiled(compiler, number, flags)
        except (subprocess.SubprocessError, OSError) as error:
            output = getattr(error, "stderr", None) or str(error)
            complaints.append(f"{shlex.join(flags)}: {output.strip()[-500:]}")
    logger.warning(
        "the kernels could not be compiled with %s: the particle filter runs in torch, several times slower",
        shlex.join(compiler),
    )
    logger.info("what the compiler said:\n%s", "\n".join(complaints))
    return "the kernels could not be compiled"


def _check_sizes(kernels: ctypes.CDLL) -> None:
    """Raise where a mirror has another size than its structure in C: pointers would end up in the wrong places."""
    for mirror in STRUCTURES:
        in_c, here = int(getattr(kernels, f"size_of_{mirror.__name__.lower()}")()), ctypes.sizeof(mirror)
        if in_c != here:
            raise RuntimeError(f"the structure {mirror.__name__} has {in_c} bytes in C, but {here} in structures.py")


def _compiled(compiler: list[str], number: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """The library from the cache, or made now."""
    # What -march=native depends on is part of the name: a cache folder may be shared by different machines.
    processor = levels.processor_flags() or platform.processor()
    key = building.digest(*building.command(compiler, number, flags), platform.machine(), processor, sys.platform)
    folder, name = _folder(), f"kernels-{number}-{key}"
    for path in sorted(folder.glob(f"{name}-*.so")):
        try:
            return _loaded(path)
        except OSError as error:
            logger.info("a library of the cache is not used, and made again: %s", error)
            with contextlib.suppress(OSError):
                path.unlink()
    _announce()
    with tempfile.TemporaryDirectory(dir=folder) as made_in:
        made = Path(made_in) / name
        building.build(compiler, number, flags, made)
        ctypes.CDLL(str(made))  # what does not load must not get into the cache
        made.chmod(0o700)
        path = folder / f"{name}-{hashlib.sha256(made.read_bytes()).hexdigest()}.so"
        with made.open("rb") as file:
            os.fsync(file.fileno())  # or a loss of power could leave the name without the bytes
        made.replace(path)  # in one move: other processes may be doing the same
    return _loaded(path)


@functools.cache
def _announce() -> None:
    """One line, once: it takes seconds, in which nothing else is said."""
    if sys.stderr is not None:
        sys.stderr.write("smc-transformer: compiling the kernels for this machine, once\n")
        sys.stderr.flush()


def _loaded(path: Path) -> ctypes.CDLL:
    """A library of the cache, if its contents are those that its name says; an OSError says why not."""
    file = verified(path, path.stem.rpartition("-")[2])
    by_number = Path(f"/proc/self/fd/{file}")
    if not by_number.exists():  # only Linux has these names
        os.close(file)
        return ctypes.CDLL(str(path))
    kernels = ctypes.CDLL(str(by_number))
    # The file stays open: the loader knows libraries by the names they were loaded by, and would give this one for
    # another that got the same number later.
    kernels._name = str(path)
    return kernels


def _folder() -> Path:
    """The cache, or a folder for this process alone where that cannot be used."""
    try:
        folder = private_folder(cache_folder() / "kernels")
        if os.access(folder, os.W_OK):
            return folder
    except UnsafeCacheError as error:
        logger.warning("the kernels are compiled for this process alone: %s", error)
    except OSError:
        pass
    return _temporary_folder()


@functools.cache
def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="smc-transformer-kernels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
