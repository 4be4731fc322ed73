"""The command `smct`."""

import argparse
import errno
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from smc_transformer._version import __version__
from smc_transformer.cli.commands import backtest, fit, predict, report, score, serve, stream
from smc_transformer.cli.errors import CommandError, UsageError, one_line
from smc_transformer.cli.plugins import entry_points

DESCRIPTION = """\
Forecasts of time series that are distributions, and so tell how certain they are.
By a transformer whose attention is random (SMC Transformer, sequential Monte Carlo)."""
EPILOG = """\
a first forecast, of a table with the columns unique_id, ds and y:
  smct fit sales.csv --horizon 12 --out model
  smct predict model --level 80 95 --out forecast.csv

smct COMMAND --help says more. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted"""


def commands() -> tuple[ModuleType, ...]:
    """Modules with a function `add`: those of the library, and those that entry points of other packages name."""
    found = entry_points("smct.commands")
    others = (import_module(found[name]) for name in sorted(found))
    return (fit, predict, backtest, score, report, stream, serve, *others)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 failed, 2 wrong usage, 130 interrupted)."""
    # Idle OpenMP threads spin; on a busy machine that steals the cores they wait for (measured: 4 times slower).
    # A short spin costs nothing elsewhere. Must be set before torch is imported; the user's own setting wins.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    _open_standard_files()
    parser = make_parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.exit(2, parser.format_help())
    options = parser.parse_args(arguments)
    try:
        with _shown_log(options.run.__module__) if hasattr(options, "verbose") else nullcontext():
            code = options.run(options) or 0
        sys.stdout.flush()  # a reader that has gone away is noticed here, not while Python ends
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, CommandError, UsageError) as error:
        sys.stderr.write(f"smct: {one_line(error)}\n")
        _give_up_output()
        return 2 if isinstance(error, UsageError) else 1
    return int(code)


class _Closed(io.TextIOBase):
    """What stands for a standard output that is closed: an error for those who write to it, not for others."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "standard output is closed")


def _open_standard_files() -> None:
    """No file of ours may get the number of a standard file that is closed: others would write their messages to it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the life of the process)


def _give_up_output() -> None:
    """What cannot be written, such as to a full disk, must not be tried again while Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Parser(argparse.ArgumentParser):
    """A parser with the options that all commands have: argparse makes the parsers of commands of the same class."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        # Absent unless given: the parser of a command must not undo what stands before the command.
        text = "show the log of the package on standard error, such as why the filter runs without its kernels"
        self.add_argument("--verbose", action="store_true", default=argparse.SUPPRESS, help=text)

    def format_help(self) -> str:
        """The help; above it what must be given, as all that may be given is told below."""
        if self.usage is None:
            self.usage = self._short_usage()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """One line on what is wrong, and one on where to read more: the usage of all options would bury both."""
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog} --help says how it is used\n")

    def _short_usage(self) -> str:
        groups = [group for group in self._mutually_exclusive_groups if group.required]
        one_of = [" | ".join(map(_shown, group._group_actions)) for group in groups]
        needed = [action for action in self._actions if action.required]
        named = [_shown(action) for action in needed if action.option_strings]
        placed = [_shown(action) for action in needed if not action.option_strings]
        return " ".join(("%(prog)s", *placed, *named, *(f"({words})" for words in one_of), "[options]"))


def _shown(action: argparse.Action) -> str:
    """An argument as it is written: its name, and what stands for its value."""
    value = action.metavar or ("{" + ",".join(action.choices) + "}" if action.choices else action.dest.upper())
    return f"{action.option_strings[0]} {value}" if action.option_strings else str(value)


@contextmanager
def _shown_log(module: str) -> Iterator[None]:
    """Log messages at INFO on standard error: those of this package and of the package that a command is from."""
    import logging  # here, as `smct --help` need not wait for it

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    loggers = {logging.getLogger(name.partition(".")[0]) for name in (__name__, module)}
    before = {logger: logger.level for logger in loggers}
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.removeHandler(handler)
            logger.setLevel(level)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line, with all commands."""
    parser = Parser(
        prog="smct",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"smct {__version__}")
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in commands():
        command.add(parsers)
    return parser
