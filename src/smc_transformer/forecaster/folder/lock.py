"""One writer at a time: two processes that follow the same series would each lose the rows of the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smc_transformer.forecaster.folder.files import CONFIG, SavedForecasterError


class LockedError(SavedForecasterError):
    """Another process is writing."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder until the end of the context, or of the process, however it ends.

    What is locked is config.json, which is only replaced with the folder, so that no file of its own is left behind.
    Without effect on Windows.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / CONFIG).open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(f"another process is writing to {folder}") from None
        yield
