"""Values of options, checked while they are parsed."""

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command adds itself."""


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
