"""One writer at a time: two processes that follow the same series would each lose what the other has seen."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "stream.lock"


class LockedError(ValueError):
    """Somebody else is writing."""


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process however that ends; without effect on Windows."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(f"another process is writing to {folder}") from None
        yield
    finally:
        os.close(file)
