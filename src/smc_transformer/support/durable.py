"""Files that are there as a whole or not at all, also after a kill, a full disk or a loss of power."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".unfinished"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of the one at `path` once it is written and on the disk.

    After an error nothing is left of it. Its mode is what the user's umask says.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or the name could reach the disk before the bytes
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path of the same name to write results to; the file takes the place of the one at `path` in the end.

    After an error what was there is there. Folders are made. Devices, pipes, and files in a folder that cannot be
    written to are written as they are.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    goal = resolved(path)  # a link stays a link
    # Asked of the path itself: that of a pipe leads to a name which does not exist.
    if (path.exists() and not path.is_file()) or not os.access(goal.parent, os.W_OK):
        yield path
        return
    import tempfile  # which loads much that `smct --help` has no need of

    # In a folder of its own, as archives keep the name of what was packed into them.
    try:
        folder = tempfile.TemporaryDirectory(prefix=f"{UNFINISHED}-", dir=goal.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None  # not a name that nobody has asked for
    with folder as name:
        unfinished = Path(name) / goal.name
        yield unfinished
        if goal.exists():
            unfinished.chmod(goal.stat().st_mode & 0o777)
        os.replace(unfinished, goal)


def resolved(path: str | Path) -> Path:
    """Where a path leads; one of links that lead in a circle stays as it is."""
    return Path(os.path.realpath(path))


def existing_above(path: Path) -> Path:
    """The nearest place above `path` that exists."""
    above = path.absolute().parent
    while not os.path.exists(above):  # one that is closed to this user is not there
        above = above.parent
    return above


def why_not_made(path: Path) -> str | None:
    """Why nothing can be made at `path`, as far as one can tell; None: it can.

    Tried, by a file without a name: to root, the system says of every folder that it can be written to.
    """
    import tempfile

    above = existing_above(path)
    if not above.is_dir():
        return f"{above} is no folder"
    try:
        with tempfile.TemporaryFile(dir=above):
            return None
    except PermissionError:
        return "permission denied"
    except OSError as error:
        return f"no file can be made in {above} ({error.strerror})"


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk; where a folder cannot be opened (Windows) the system does it later."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass  # some file systems know no fsync of folders
    finally:
        os.close(handle)
