"""Options of all commands, and values of options, which are checked while they are parsed."""

import argparse
import json
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command adds itself."""


def add_json(parser: argparse.ArgumentParser) -> None:
    """Output for other programs."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return at_least(1, text)


def seed(text: str) -> int:
    """A whole number of at least 0."""
    return at_least(0, text)


def at_least(least: int, text: str) -> int:
    """A whole number that is not too small, or an error that argparse shows."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
    return value


def percentage(text: str) -> int | float:
    """A number strictly between 0 and 100; a whole one as such."""
    value = _number_between(text, 100)
    return int(value) if value == int(value) else value


def probability(text: str) -> float:
    """A number strictly between 0 and 1."""
    return _number_between(text, 1)


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


def _number_between(text: str, most: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < most:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and {most}, got {text!r}")
    return value
