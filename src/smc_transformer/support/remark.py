"""Messages of commands beside their output."""

import sys


def remark(text: str) -> None:
    """A line on standard error: standard output may be a table for another program."""
    sys.stderr.write(text + "\n")
