"""A progress bar on a terminal; elsewhere a line now and then, for those who read a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable


@runtime_checkable
class ProgressReport(Protocol):
    """What long work tells how far it is."""

    def advance(self, amount: int, message: str = "") -> None:
        """Count `amount` more units as done, with a short message on the latest state."""


SECONDS_BETWEEN_LINES = 30.0
"""Where there is no terminal; work that is done sooner says nothing."""


class _Silent:
    def advance(self, amount: int, message: str = "") -> None:
        pass


class _Lines:
    """A line now and then: what is done, of how much, since when."""

    def __init__(self, title: str, total: int):
        self.title, self.total, self.done = title, total, 0
        self.begun = self.told = time.monotonic()

    def advance(self, amount: int, message: str = "") -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.told < SECONDS_BETWEEN_LINES or sys.stderr is None:
            return
        self.told = now
        said = f", {message}" if message else ""
        sys.stderr.write(f"{self.title}: {self.done} of {self.total} after {now - self.begun:.0f} seconds{said}\n")
        sys.stderr.flush()


@contextmanager
def progress_report(title: str, total: int, *, enabled: bool = True) -> Iterator[ProgressReport]:
    """A bar with elapsed and remaining time on standard error, if that is a terminal; else lines."""
    from rich.console import Console

    console = Console(stderr=True)
    if not enabled:
        yield _Silent()
        return
    if not console.is_terminal:
        yield _Lines(title, total)
        return

    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    done = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    state = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[message]}"))
    with Progress(*done, *state, console=console) as bar:
        task = bar.add_task(title, total=total, message="")

        class _Bar:
            def advance(self, amount: int, message: str = "") -> None:
                bar.update(task, advance=amount, message=message)

        yield _Bar()
