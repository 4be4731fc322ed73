"""The bytes of a csv file: as it is, in a gzip file, or in a zip archive."""

import gzip
import zipfile
import zlib
from pathlib import Path, PurePosixPath


class DataFileError(ValueError):
    """A data file does not hold what it should."""


def read_contents(path: Path, csv: str) -> bytes:
    """The file's bytes, unpacked; `csv` names the member of a zip archive."""
    path = Path(path)
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                # By the last part of the name: archives made on a Mac hold a second entry ._name for each file.
                members = [name for name in archive.namelist() if PurePosixPath(name).name == csv]
                if not members:
                    raise DataFileError(f"{path} holds no {csv}, but {', '.join(archive.namelist()) or 'nothing'}")
                return archive.read(members[0])
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataFileError(f"{path} cannot be unpacked: {error}") from error
    return path.read_bytes()
