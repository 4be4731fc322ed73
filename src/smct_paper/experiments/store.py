"""Results on disk: one file for each cell, written when the cell is finished, and results.json made from them.

    <folder>/cells/<dataset>-<split>-<model>-<config>-<seed>.json
    <folder>/results.json

Files are replaced atomically, so a run can be killed at any time. Of results that are kept elsewhere, in a repository
say, results.json is enough: the cells are made from it again, and a run goes on where that one had stopped.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from smct_paper.experiments.grid import FOLDS, Cell

State = Literal["done", "failed", "changed", "open"]

IDENTITY = ("dataset", "split", "model", "config", "seed", "fold")
SHARED = ("profile", "settings", "evaluation", "training", "seconds", "versions")
"""Keys that both tasks of a cell share."""


class Store:
    """The results in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cells = folder / "cells"
        self.results = folder / "results.json"

    def path(self, cell: Cell) -> Path:
        """The file of a cell."""
        return self.cells / f"{cell.name}.json"

    def read(self, cell: Cell) -> dict[str, Any]:
        """The stored record of a cell; empty if there is none, or it cannot be read."""
        return _read(self.path(cell))

    def write(self, cell: Cell, record: dict[str, Any]) -> None:
        """Store the record of a cell, finished or failed (with the key "error").

        A failure does not replace a result that is there already: the error is noted beside it.
        """
        before = self.read(cell)
        if "error" in record and "tasks" in before:
            record = before | {"error": record["error"]}
        write_whole(self.path(cell), json.dumps(cell.identity() | record, indent=1, allow_nan=False) + "\n")

    @property
    def has_lost_its_cells(self) -> bool:
        """Whether there are results (committed ones, say) without the files that they were made from."""
        return not self.cells.exists() and self.results.exists() and bool(json.loads(self.results.read_text()))

    def restore(self) -> int:
        """Make the files of cells from results.json, which has all they had, in six digits; returns how many.

        Raises:
            ValueError: results.json is not what `assemble` writes.
        """
        records: dict[Cell, dict[str, Any]] = {}
        for row in json.loads(self.results.read_text()):
            try:
                repetition = row["fold" if row["split"] == FOLDS else "seed"]
                cell = Cell(row["dataset"], row["split"], row["model"], row["config"], repetition)
                task = {key: value for key, value in row.items() if key not in (*IDENTITY, *SHARED, "task")}
                shared = {key: row[key] for key in SHARED if key in row}
                records.setdefault(cell, shared | {"tasks": {}})["tasks"][row["task"]] = task
            except (KeyError, TypeError) as error:
                raise ValueError(f"{self.results} has a row that is no result: {str(row)[:80]}") from error
        for cell, record in records.items():
            self.write(cell, record)
        return len(records)

    def remove(self, cells: Iterable[Cell]) -> None:
        """Forget cells, so that they run again."""
        for cell in cells:
            self.path(cell).unlink(missing_ok=True)

    def state(self, cell: Cell, wanted: dict[str, Any]) -> State:
        """How far a cell is, where `wanted` is what it would be run with (profile, settings, evaluation).

        "changed" is finished, but run with something else.
        """
        record = self.read(cell)
        if not record:
            return "open"
        if "error" in record:
            return "failed"
        return "done" if all(rounded(record.get(key)) == rounded(value) for key, value in wanted.items()) else "changed"

    def failures(self) -> dict[str, str]:
        """The last line of the error of each cell that failed, by the cell's name."""
        records = {path.stem: _read(path) for path in sorted(self.cells.glob("*.json"))}
        return {name: last_line(record["error"]) for name, record in records.items() if record.get("error")}

    def assemble(self) -> list[dict[str, Any]]:
        """Write results.json: a row for each task of each finished cell in the folder; returns the rows."""
        records = [_read(path) for path in sorted(self.cells.glob("*.json"))]
        rows = rounded([row for record in records if "tasks" in record for row in _rows(record)])
        # A row on a line: short enough to commit, and a difference shows which cells changed.
        write_whole(self.results, "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in rows) + "\n]\n")
        return rows


def last_line(error: str) -> str:
    """What a traceback says in the end."""
    return error.strip().splitlines()[-1] if error.strip() else "no message"


def write_whole(path: Path, text: str) -> None:
    """Write a file in one go: under another name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # else a power cut may keep the new name and lose the content
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def rounded(value: Any) -> Any:
    """Numbers with six digits: more would only be noise, and results.json twice as long."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    identity, shared = ({key: record[key] for key in keys if key in record} for keys in (IDENTITY, SHARED))
    return [identity | {"task": task} | scores | shared for task, scores in record["tasks"].items()]
