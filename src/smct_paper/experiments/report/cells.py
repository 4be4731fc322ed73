"""Tables before they become Markdown or HTML: numbers with their spread, and marks."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from smct_paper.experiments.report.results import Average

NOT_RUN = "\N{EM DASH}"
MARKS = {"met": "✓", "missed": "✗", "open": "?"}
"""Signs beside the colours, for readers who cannot tell the colours apart."""


class Part(NamedTuple):
    """A line of a cell."""

    text: str
    spread: str = ""
    best: bool = False


class Cell(NamedTuple):
    """What stands in one place of a table; the kind is a class of the page's style: "paper", "missing", "met", ..."""

    parts: tuple[Part, ...] = ()
    kind: str = ""


class TableRow(NamedTuple):
    """A line of a table."""

    heading: str
    cells: tuple[Cell, ...]
    kind: str = ""


class Table(NamedTuple):
    """A table with its footnotes."""

    title: str
    columns: Sequence[str]
    """Titles, that of the headings included."""
    rows: Sequence[TableRow]
    notes: Sequence[str] = ()


MISSING = Cell((Part(NOT_RUN),), "missing")
EMPTY = Cell()


def text_cell(text: str, kind: str = "") -> Cell:
    """A cell of one line."""
    return Cell((Part(text),), kind)


def number(value: float, digits: int = 3, *, sign: bool = False) -> str:
    """A number with fixed decimals; as a power of ten where decimals would pretend to matter."""
    form = f"{'+' if sign else ''}.{digits}f" if abs(value) < 1000 else ".1e"
    return format(value, form) if math.isfinite(value) else str(value)


def average_part(average: Average, digits: int = 3, *, best: bool = False, sign: bool = False) -> Part:
    """Mean and standard deviation."""
    spread = "" if average.deviation is None else f"± {number(average.deviation, digits)}"
    return Part(number(average.mean, digits, sign=sign), spread, best)


def average_cell(
    average: Average | None, digits: int = 3, *, best: bool = False, sign: bool = False, none: Cell = EMPTY
) -> Cell:
    """A cell of one average; `none` where there is none."""
    return none if average is None else Cell((average_part(average, digits, best=best, sign=sign),))


def to_markdown(table: Table) -> str:
    """A table of GitHub's Markdown, its title and notes around it."""
    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [_line(table.columns), _line(("---", *("---:" for _ in table.columns[1:])))]
    lines += [_line((_escaped(row.heading), *map(_cell, row.cells))) for row in table.rows]
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = "<br>".join(_part(part) for part in cell.parts)
    return f"{text} {MARKS[cell.kind]}" if cell.kind in MARKS else text


def _part(part: Part) -> str:
    text = f"**{_escaped(part.text)}**" if part.best else _escaped(part.text)
    return f"{text} {_escaped(part.spread)}" if part.spread else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
