"""One writer at a time: two processes that follow the same series would each lose the rows of the other."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

from smc_transformer.forecaster.folder.files import CONFIG, SavedForecasterError


class LockedError(SavedForecasterError):
    """Another process is writing."""


class Lock(AbstractContextManager["Lock"]):
    """The lock of a folder, taken at once and held until `release`, or until the process ends, however it ends.

    What is locked is config.json, which nobody replaces without the folder, so that no file of its own is left behind.
    Without effect on Windows.
    """

    def __init__(self, folder: Path) -> None:
        self._file: int | None = None
        try:
            import fcntl
        except ImportError:
            return
        self._file = os.open(folder / CONFIG, os.O_RDWR)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise LockedError(f"another process is writing to {folder}") from None

    def release(self) -> None:
        """Let others write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __exit__(self, *error: object) -> None:
        self.release()
