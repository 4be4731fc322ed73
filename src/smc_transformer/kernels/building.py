"""Which sources the kernels are made of, and how a C compiler makes a library of them.

Python's own library only: the build of a wheel (hatch_build.py) runs this file alone, where torch is not installed.
"""

import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
NAMES = (
    "pool",
    "filter",
    "step",
    "follow",
    "rows",
    "trajectories",
    "attention",
    "replay",
    "paths",
    "recurrent",
    "trees",
    "noise",
    "gamma",
    "draws",
    "view",
)
SOURCES = tuple(f"{name}.c" for name in NAMES)
HEADERS = tuple(
    f"{name}.h"
    for name in (
        *("common", "band", "layer", "gradient", "encoder", "noise"),
        *("threefry", "gamma", "pool", "weights", "student", "view"),
    )
)
NUMBERS = ("float", "double")

FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-pthread",
    # Sums may be taken in any order, but NaN and infinity must keep their meaning: not -ffast-math.
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fassociative-math",
    "-freciprocal-math",
    "-ffp-contract=fast",
)


def c_compiler() -> list[str] | None:
    """The command of the C compiler: CC with its options, or the first that is found; None: there is none."""
    try:
        chosen = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:  # such as a quotation mark without another
        logger.warning("CC cannot be read (%s): %s", error, os.environ["CC"])
        return None
    if chosen:
        return chosen if shutil.which(chosen[0]) else None
    return next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def command(compiler: list[str], number: str, flags: tuple[str, ...]) -> list[str]:
    """How a source is compiled for numbers of this C type; `flags` are those of the processor."""
    return [*compiler, *FLAGS, *flags, f"-DREAL={number}"]


def digest(*settings: str) -> str:
    """Of the sources and of what else the machine code depends on: part of a library's name."""
    key = hashlib.sha256()
    for setting in settings:
        key.update(setting.encode() + b"\0")
    for name in (*SOURCES, *HEADERS):
        key.update((FOLDER / name).read_bytes())
    return key.hexdigest()[:20]


def build(compiler: list[str], number: str, flags: tuple[str, ...], made: Path) -> None:
    """Compile and link a library.

    Raises:
        subprocess.SubprocessError: the compiler failed; `stderr` is what it said.
        OSError: the compiler could not be run.
    """
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        objects = [str(Path(folder, name).with_suffix(".o")) for name in SOURCES]

        def compile_source(name: str, into: str) -> None:
            _run([*command(compiler, number, flags), "-c", str(FOLDER / name), "-o", into])

        compile_source(SOURCES[0], objects[0])  # alone: a compiler that fails is told by one of them
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            list(threads.map(compile_source, SOURCES[1:], objects[1:]))
        _run([*compiler, "-shared", "-pthread", *objects, "-o", str(made), "-lm"])


def _run(arguments: list[str]) -> None:
    subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=300)
