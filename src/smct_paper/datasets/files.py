"""Finding a publisher's file: in a folder of the user, in the cache, or by download.

A file is looked for in the folder `data_dir`, in the folder that SMC_TRANSFORMER_DATA names, and in our cache folder;
if none has it, it is downloaded into the cache. A local file is used as it is, since publishers update
their files and the readers check what they read; a download must have the known sha256, where one is known.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smc_transformer.kernels.cache import cache_folder
from smct_paper.datasets.contents import DataFileError, read_contents

logger = logging.getLogger(__name__)

TIMEOUT = 30  # seconds without an answer


@dataclass(frozen=True)
class DataFile:
    """A file of a publisher."""

    names: tuple[str, ...]  # names under which the file is accepted, the preferred one first
    publisher: str  # who publishes it
    page: str  # where a person finds it
    licence: str  # under which terms
    csv: str  # name of the csv, for files that are archives
    address: str | None = None  # where it can be downloaded; None if that needs a login
    download: str = ""  # name of the downloaded file, one of `names`
    sha256: str | None = None  # of the csv (unpacked) as it is published now; None where that is not known
    first_line: str = ""  # words of the csv's first line, by which a download without a known hash is recognised
    tested_sha256: tuple[str, ...] = ()  # of other versions of the csv that the project was tested with

    def is_tested(self, sha256: str) -> bool:
        """Whether the project was tested with this version of the csv."""
        return sha256 in (self.sha256, *self.tested_sha256)


class DataFileNotFoundError(FileNotFoundError):
    """A data file is in none of the folders, and could not be downloaded."""


def data_folders(data_dir: Path | str | None = None) -> list[Path]:
    """The folders that are searched, in their order; the last one is our cache."""
    named = {"data_dir": data_dir, "SMC_TRANSFORMER_DATA": os.environ.get("SMC_TRANSFORMER_DATA")}
    for origin, folder in named.items():
        if folder and not Path(folder).is_dir():
            raise DataFileNotFoundError(f"{origin} names {str(folder)!r}, which is not a folder")
    return [*(Path(folder) for folder in named.values() if folder), cache_folder() / "data"]


def find_file(file: DataFile, data_dir: Path | str | None = None) -> Path | None:
    """The file at hand, or None."""
    places = (folder / name for folder in data_folders(data_dir) for name in file.names)
    return next((place for place in places if place.is_file()), None)


def locate_file(file: DataFile, data_dir: Path | str | None = None) -> Path:
    """The file at hand, or else downloaded."""
    found = find_file(file, data_dir)
    if found is None:
        return download_file(file, data_dir)
    sha256 = contents_sha256(found, file.csv)
    if not file.is_tested(sha256):
        logger.info("%s is not a version that the project was tested with: its sha256 is %s", found, sha256)
    return found


def contents_sha256(path: Path, csv: str) -> str:
    """The hash of a csv, packed or not: archives of the same data differ."""
    return hashlib.sha256(read_contents(path, csv)).hexdigest()


def download_file(file: DataFile, data_dir: Path | str | None = None) -> Path:
    """Download into our cache folder, checked by the sha256 of the csv where it is known."""
    if file.address is None:
        raise _missing(file, data_dir, "it cannot be downloaded without a login")
    try:
        import pooch
    except ImportError as error:
        raise ImportError("downloads need pooch: pip install 'smc-transformer[experiments]'") from error
    # It would tell people to note the hash of every download whose archive has no known one; we check the csv in it.
    pooch.get_logger().setLevel("WARNING")
    folder = cache_folder() / "data"
    # Under another name until it is checked, so that a wrong file is never found by a later run.
    unchecked = f"unchecked-{os.getpid()}-{file.download}"
    try:
        with _download_bar(file.download) as bar:
            downloader = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)
            pooch.retrieve(file.address, known_hash=None, fname=unchecked, path=folder, downloader=downloader)
        sha256 = _check_download(file, folder / unchecked)
        (folder / unchecked).replace(folder / file.download)
    except (OSError, ValueError) as error:  # those of requests are OSErrors
        # The first clause: connection errors go on to quote every layer that they came through.
        in_short = f"{type(error).__name__}: {str(error).partition(' (Caused by ')[0]}"
        raise _missing(file, data_dir, f"downloading it failed ({in_short})") from error
    finally:
        (folder / unchecked).unlink(missing_ok=True)
    logger.info("downloaded %s from %s; sha256 of %s: %s", folder / file.download, file.address, file.csv, sha256)
    return folder / file.download


def _check_download(file: DataFile, path: Path) -> str:
    contents = read_contents(path, file.csv)
    sha256 = hashlib.sha256(contents).hexdigest()
    if file.sha256 is not None and sha256 != file.sha256:
        hint = "a file put there by hand is accepted if it can be read"
        raise DataFileError(f"its csv has the sha256 {sha256} instead of {file.sha256}; {hint}")
    # A network that wants a login answers every request with a page of its own.
    if file.first_line.encode() not in contents.partition(b"\n")[0]:
        raise DataFileError(f"its first line lacks {file.first_line!r}")
    return sha256


def _missing(file: DataFile, data_dir: Path | str | None, reason: str) -> DataFileNotFoundError:
    folders = data_folders(data_dir)
    return DataFileNotFoundError(
        f"{' or '.join(file.names)} is not in {', '.join(map(str, folders))}, and {reason}. "
        f"Get it from {file.address or file.page} ({file.publisher}), and put it into {folders[0]}, "
        "or into a folder that the environment variable SMC_TRANSFORMER_DATA names"
    )


@contextmanager
def _download_bar(title: str) -> Iterator[Any]:
    """What pooch reports to: a bar on standard error if that is a terminal, else False (no bar)."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield False
        return

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        yield _Bar(progress, progress.add_task(title, total=None))


@dataclass
class _Bar:
    """The part of tqdm's interface that pooch calls, spoken by rich; a total of 0 is an unknown one: the bar pulses."""

    progress: Any
    task: Any
    total: int | None = None

    def update(self, amount: int) -> None:
        self.progress.update(self.task, advance=amount, total=self.total or None)

    def reset(self) -> None:
        # pooch resets at the end, to count again to the full size.
        self.progress.update(self.task, completed=0, total=self.total or None)

    def close(self) -> None:
        """The surrounding context ends the bar."""
