"""A progress bar where somebody watches: on a terminal, and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable


@runtime_checkable
class ProgressReport(Protocol):
    """What long work tells how far it is."""

    def advance(self, amount: int, message: str = "") -> None:
        """Count `amount` more units as done, with a short message on the latest state."""


class _Silent:
    def advance(self, amount: int, message: str = "") -> None:
        pass


@contextmanager
def progress_report(title: str, total: int, *, enabled: bool = True) -> Iterator[ProgressReport]:
    """A bar with elapsed and remaining time on standard error, if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not (enabled and console.is_terminal):
        yield _Silent()
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
