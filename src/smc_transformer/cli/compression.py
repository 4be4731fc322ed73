"""Compressed files; the ending of the file name says which compression."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from smc_transformer.cli.errors import TableFileError

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSIONS = (*OPENERS, ".zip", ".zst")


def compression_of(path: Path | str) -> str:
    """The compression that a file's name ends with, or nothing."""
    ending = Path(path).suffix.lower()
    return ending if ending in COMPRESSIONS else ""


@contextmanager
def opened(path: Path, mode: Literal["r", "w"]) -> Iterator[Any]:
    """A file of bytes, unpacked while it is read, or packed while it is written."""
    kind = compression_of(path)
    if kind == ".zip":
        import zipfile  # here and below, as `smct --help` need not wait for it

        with zipfile.ZipFile(path, mode, zipfile.ZIP_DEFLATED) as archive:
            names = archive.namelist() if mode == "r" else [path.stem]
            if len(names) != 1:
                raise TableFileError(f"the file cannot be unpacked: expected one file in it, got {len(names)}")
            with archive.open(names[0], mode) as file:
                yield file
    elif kind == ".zst":  # which Python knows from 3.14 on only, but pyarrow does
        arrow = import_module("pyarrow")
        with (arrow.input_stream if mode == "r" else arrow.output_stream)(str(path), compression="zstd") as file:
            yield file
    else:
        with OPENERS.get(kind, open)(path, f"{mode}b") as file:
            yield file


@contextmanager
def unpacking() -> Iterator[None]:
    """Turn the many errors of unpacking into one."""
    import zipfile

    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, ImportError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # gzip and bz2 give none for a file of another format
            raise
        raise TableFileError(f"the file cannot be unpacked: {error}") from None
