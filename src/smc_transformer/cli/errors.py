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
    except (ValueError, ImportError, MemoryError, RuntimeError) as error:
        said = one_line(error)
        if isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError):
            # torch has no kind of its own for a lack of memory; a collapse of all weights is ours.
            if "alloc" in said or "memory" in said:
                said = f"not enough memory ({said[:200]})"
            elif type(error).__module__.partition(".")[0] != __name__.partition(".")[0]:
                raise
        elif isinstance(error, MemoryError):
            said = f"not enough memory: {error}" if str(error) else "not enough memory"
        where = ", ".join(str(file) for file in files if file is not None)
        raise CommandError(f"{where}: {said}" if where else said) from error


@contextmanager
def naming(file: Path | str) -> Iterator[None]:
    """Say of which file an error of the system speaks: it does not itself, where a disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(file)) from None


def check_installed(package: str, need: str, extra: str) -> None:
    """Fail before the work, not after it, without a package that its result needs."""
    try:
        import_module(package)
    except ImportError:
        raise CommandError(f"{need} {package}: pip install 'smc-transformer[{extra}]'") from None


def one_line(error: BaseException) -> str:
    """What an error says, without line breaks; of a file, what is wrong with which, without the number of the error."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
