"""A word to whoever runs a command, beside its output."""

import sys


def remark(text: str) -> None:
    """A line on standard error: standard output may be a table for another program."""
    sys.stderr.write(text + "\n")
