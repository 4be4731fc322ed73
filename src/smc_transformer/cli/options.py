"""Options of all commands, and values of options, which are checked while they are parsed."""

import argparse
import json
import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command adds itself."""

LAST_PORT = 2**16 - 1


def add_command(
    commands: Commands, run: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    """A command whose help is the docstring of its module: "`smct NAME`: help", the description, an example."""
    title, description, example = text.split("\n\n", 2)
    name, _, short = title.removeprefix("`smct ").rstrip(".").partition("`: ")
    as_written = "\n" in example.strip()
    form = argparse.RawDescriptionHelpFormatter if as_written else argparse.HelpFormatter
    parser = commands.add_parser(name, help=short, description=description, epilog=example, formatter_class=form)
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Output for other programs."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _whole_number(text, 1)


def port(text: str) -> int:
    """A port of TCP that a server can listen on."""
    value = _whole_number(text, 1)
    if value > LAST_PORT:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to {LAST_PORT}, got {text!r}")
    return value


def not_negative(text: str) -> int:
    """A whole number of at least 0."""
    return _whole_number(text, 0)


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
    return value


def separator(text: str) -> str:
    """What stands between the cells of a text file."""
    try:
        if len(text) > 1:
            re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(
            f"expected a character or a regular expression, got {text!r}: {error}"
        ) from None
    return text


def percentage(text: str) -> int | float:
    """A percentage from 1 to below 100, a whole one as such: 0.8 is what other libraries call 80."""
    value = number(text)
    if not 1 <= value < 100:
        raise argparse.ArgumentTypeError(f"expected a percentage, such as 80, from 1 to below 100, got {text!r}")
    return int(value) if value == int(value) else value


def duration(text: str) -> float:
    """Seconds, from a number with a unit, such as 90s, 30min, 12h or 7d."""
    units = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    count, unit = text.rstrip("smihnd"), text[len(text.rstrip("smihnd")) :]
    try:
        seconds = float(count) * units[unit]
    except (ValueError, KeyError):
        seconds = float("nan")
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 30min, 12h or 7d, got {text!r}")
    return seconds


def probability(text: str) -> float:
    """A number strictly between 0 and 1."""
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, got {text!r}")
    return value


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE; the value is JSON where it can be read as such, else text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def frequency(text: str) -> str | int:
    """A pandas frequency, or a whole number."""
    return int(text) if text.isdigit() else text


def _whole_number(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
    return value
