"""Errors of commands: one line on standard error, and an exit code for scripts."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path


class CommandError(Exception):
    """The work failed: exit code 1."""


class TableFileError(ValueError):
    """A file that cannot be read or written as a table, and why."""


class UsageError(Exception):
    """The options contradict each other or have impossible values: exit code 2."""


@contextmanager
def failing(*files: Path | str | None) -> Iterator[None]:
    """Turn errors about data, models and missing packages into one that names the files they came from."""
    try:
        yield
    except (ValueError, ImportError) as error:
        where = ", ".join(str(file) for file in files if file is not None)
        raise CommandError(f"{where}: {one_line(error)}" if where else one_line(error)) from error


def check_installed(package: str, need: str, extra: str) -> None:
    """Fail before the work, not after it, without a package that its result needs."""
    try:
        import_module(package)
    except ImportError:
        raise CommandError(f"{need} {package}: pip install 'smc-transformer[{extra}]'") from None


def one_line(error: BaseException) -> str:
    """What an error says, without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
