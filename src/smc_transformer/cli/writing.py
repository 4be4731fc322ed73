"""Output of commands: tables and JSON on standard output or in files, remarks on standard error."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import check_installed, failing
from smc_transformer.cli.tables import STANDARD, write_table
from smc_transformer.support.as_json import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.table import Table


def say(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """A JSON document on standard output."""
    say(json.dumps(plain(value), indent=2, allow_nan=False))


def say_table(table: "Table", width: int) -> None:
    """A table of rich on standard output; in a file or a pipe, so wide that no cell is broken."""
    from rich.console import Console

    Console(width=None if Console().is_terminal else width).print(table, markup=False)


def put_table(table: "pd.DataFrame", out: Path | None, *, quiet: bool) -> None:
    """Write a table to a file, or as CSV to standard output unless JSON goes there (`quiet`)."""
    if out is None and quiet:
        return
    with failing():
        write_table(table, STANDARD if out is None else out)
    if out is not None and not quiet and str(out) != STANDARD:
        say(f"{out}: {len(table)} rows")


def check_plots(path: Path | None) -> None:
    """Fail before the work, not after it, if a picture is asked for and cannot be drawn."""
    if path is not None:
        check_installed("matplotlib", "pictures need", "plots")


def put_picture(figure: "Figure", path: Path, *, quiet: bool) -> None:
    """Save a picture in the format that its name ends with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with failing(path):
        figure.savefig(path, dpi=150)
    if not quiet:
        say(f"{path}: picture")
