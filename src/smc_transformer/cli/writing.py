"""Output of commands: tables and JSON on standard output or in files, remarks on standard error."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import CommandError, check_installed, failing, naming
from smc_transformer.cli.tables import STANDARD, check_ending, write_table
from smc_transformer.support.as_json import plain
from smc_transformer.support.durable import resolved, whole, why_not_made

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
    to = STANDARD if out is None else out
    with failing(), naming("standard output" if str(to) == STANDARD else to):
        write_table(table, to)
    if out is not None and not quiet and str(out) != STANDARD:
        say(f"{out}: {len(table)} rows")


def check_table(table: Path | None) -> None:
    """Fail before the work, not after it, if a table could not be written."""
    if table is not None and str(table) != STANDARD:
        with failing():
            check_ending(table)
        check_place(table)


def check_outputs(table: Path | None, picture: Path | None = None) -> None:
    """The same of a table and a picture."""
    check_table(table)
    if picture is not None:
        check_installed("matplotlib", "pictures need", "plots")
        from matplotlib.backend_bases import FigureCanvasBase

        known = FigureCanvasBase.get_supported_filetypes()
        if (ending := picture.suffix.lower().removeprefix(".") or "png") not in known:
            raise CommandError(f"{picture}: pictures are not written as {ending!r}, but as {', '.join(sorted(known))}")
        check_place(picture)


def check_place(path: Path) -> None:
    """That a file can be made there, as far as one can tell."""
    if path.is_dir():
        raise CommandError(f"{path} is a folder, expected the name of a file")
    if path.exists():
        if not os.access(path, os.W_OK):
            raise CommandError(f"{path} cannot be written: permission denied")
        if not path.is_file() or not os.access(resolved(path).parent, os.W_OK):
            return  # it is written as it is, see `whole`
    if reason := why_not_made(resolved(path)):
        raise CommandError(f"{path} cannot be written: {reason}")


def put_picture(figure: "Figure", path: Path, *, quiet: bool) -> None:
    """Save a picture in the format that its name ends with."""
    with failing(path), naming(path), whole(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix.lower().removeprefix(".") or "png")
    if not quiet:
        say(f"{path}: picture")
