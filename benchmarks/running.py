"""A benchmark of several parts as a command: chosen parts are run, rows written as they come, tables printed."""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table

Rows = Iterator[dict]
Part = Callable[[bool, Path | None], Rows]
"""part(tiny, out): its rows; `out` is the file they go to, beside which it may put a figure."""


def run_parts(description: str | None, parts: dict[str, Part]) -> None:
    """The command line of a benchmark, with one thread."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="some parts; the others are kept")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: only to see that everything runs")
    parser.add_argument("--out", type=Path, help="file for the rows; figures go beside it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if options.out is not None and options.out.exists():
        rows = [row for row in json.loads(options.out.read_text()) if row["part"] not in options.only]
    console = Console(width=160)
    for name in options.only:
        started = perf_counter()
        for row in parts[name](options.tiny, options.out):
            rows.append({"part": name, **row})
            if options.out is not None:
                options.out.write_text(json.dumps(rows, indent=2) + "\n")
        console.print(f"{name}: {perf_counter() - started:.0f} s", style="dim")
    for name in parts:
        _show(console, name, [row for row in rows if row["part"] == name])


def _show(console: Console, title: str, rows: list[dict]) -> None:
    if not rows:
        return
    names = [name for name in rows[0] if name != "part"]
    table = Table(*names, title=title)
    for row in rows:
        table.add_row(*(f"{row[name]:.3g}" if isinstance(row[name], float) else str(row[name]) for name in names))
    console.print(table)
