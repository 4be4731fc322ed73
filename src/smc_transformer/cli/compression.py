"""Compressed files; the ending of the file name says which compression."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zip", ".zst")


class PackedFileError(ValueError):
    """A compressed file that cannot be unpacked, and why."""


def compression_of(path: Path | str) -> str:
    """The compression that a file's name ends with, or nothing."""
    ending = Path(path).suffix.lower()
    return ending if ending in COMPRESSIONS else ""


def unpack(path: Path) -> bytes:
    """What is in a compressed file."""
    import bz2
    import gzip
    import lzma
    import zipfile

    kind = compression_of(path)
    with unpacking():
        if kind == ".zip":
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                if len(names) != 1:
                    raise PackedFileError(f"expected one file in it, got {len(names)}")
                return archive.read(names[0])
        if kind == ".zst":  # which Python knows from 3.14 on only, but pyarrow does
            with import_module("pyarrow").input_stream(str(path), compression="zstd") as stream:
                return bytes(stream.read())
        data = path.read_bytes()
        return {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}.get(kind, bytes)(data)


def pack(path: Path, data: bytes) -> None:
    """Write a file, compressed if its name says so."""
    import bz2
    import gzip
    import lzma
    import zipfile

    kind = compression_of(path)
    if kind == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(path.stem, data)
    elif kind == ".zst":
        with import_module("pyarrow").output_stream(str(path), compression="zstd") as stream:
            stream.write(data)
    else:
        packers: dict[str, Callable[[bytes], bytes]] = {
            ".gz": gzip.compress,
            ".bz2": bz2.compress,
            ".xz": lzma.compress,
        }
        path.write_bytes(packers.get(kind, bytes)(data))


@contextmanager
def unpacking() -> Iterator[None]:
    """Turn the many errors of unpacking into one."""
    import lzma
    import zipfile
    import zlib

    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, ImportError) as error:
        raise PackedFileError(str(error)) from None
    except OSError as error:
        if error.errno is None:  # raised by gzip and bz2 for a file of another format
            raise PackedFileError(str(error)) from None
        raise
