"""The rows that a stream has accepted, with their answers.

A batch of rows is written in one transaction before any of its answers is given, so an answered row survives a kill and
a loss of power. Rows are numbered by rounds: those of one round, at most one of a series, went through the filter
together, and are replayed together. The states, saved now and then, hold all rounds up to one; the later ones are
replayed when the forecaster is loaded. The last rows of each series are kept longer, so that a row that is sent again
is answered as before, and people can be shown what was forecast. Each row has a checksum: a flipped bit would be
replayed as another value.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pandas as pd

from smc_transformer.forecaster.folder.recorded import Recorded, Round, Seen, read_answers, read_cells, read_level
from smc_transformer.forecaster.folder.store.databases import Database, StoreError
from smc_transformer.forecaster.table import Name
from smc_transformer.support.checks import check_count
from smc_transformer.support.checksums import checksum, has_broken_seal, sealed
from smc_transformer.support.tensor_files import check_format

FORMAT, VERSION = "smc-transformer-accepted", 1
KEPT = 100
"""Rows of each series that are kept once the states hold them."""
LARGEST = 2**62
"""Of a count."""

_COLUMNS = "series, time, round, place, cells, answer, checksum"
_TABLES = (
    "CREATE TABLE stream (id INTEGER PRIMARY KEY, document TEXT NOT NULL)",
    "CREATE TABLE accepted (series TEXT NOT NULL, time TEXT NOT NULL, round BIGINT NOT NULL, place BIGINT NOT NULL, "
    "cells TEXT NOT NULL, answer TEXT NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (series, time))",
    "CREATE INDEX accepted_by_round ON accepted (round, place)",
    "CREATE INDEX accepted_by_series ON accepted (series, round)",
)
_INSERT = f"INSERT INTO accepted ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_FORGET = (
    "DELETE FROM accepted WHERE series = ? AND round <= "
    "(SELECT round FROM accepted WHERE series = ? ORDER BY round DESC LIMIT 1 OFFSET ?)"
)


class Accepted(NamedTuple):
    """One accepted row, and what was answered."""

    name: Name
    time: Any
    cells: dict[str, Any]  # as in `forecaster.rows.Row`
    answer: dict[str, Any]


class Store:
    """The tables of a folder. One process writes to them at a time."""

    def __init__(self, database: Database, fit: str, begin: Recorded | None = None) -> None:
        """Read what is there. A database without tables gets some, for a stream that goes on after `begin`."""
        self._database, self._fit = database, fit
        if begin is not None and not database.has_tables():
            with database.transaction():
                self._make_tables(begin)
        with database.transaction():
            self._document = self._read_document()
            fresh = database.run("SELECT DISTINCT series FROM accepted WHERE round > ?", (self._document["saved"],))
        self._fresh = {name for (name,) in fresh}  # series that have got rows since the states were saved
        self.distrust: int | float | None = self._document["distrust"]  # of the rows to come

    @property
    def seen(self) -> Seen:
        """How many lines were answered in the life of the stream, and the last answers."""
        return Seen(self._document["lines"], tuple(self._document["answers"]))

    @property
    def n_pending(self) -> int:
        """Lines since the states were saved."""
        return self._document["pending_lines"]

    def append(
        self, rounds: Sequence[Sequence[Accepted]], *, lines: int, answers: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Write down rows, round by round, and that so many lines more were answered, the last ones like this.

        When this returns, all of it is on the disk; after an error, none of it is there.
        """
        before = self._document
        rows = [
            _stored(one, number, place, self.distrust)
            for number, together in enumerate(rounds, start=before["round"] + 1)
            for place, one in enumerate(together)
        ]
        after = {
            **before,
            "round": before["round"] + len(rounds),
            "pending": before["pending"] + len(rows),
            "pending_lines": before["pending_lines"] + lines,
            "lines": before["lines"] + lines,
            "answers": list(answers),
            "distrust": self.distrust,
        }
        with self._database.transaction():
            if rows:
                self._database.run_many(_INSERT, rows)
            self._write_document(after)
        self._document = after
        self._fresh.update(row[0] for row in rows)

    def find(self, name: Name, time: Any) -> Accepted | None:
        """The row of a series at a time, if it is still kept."""
        return next(iter(self._rows("series = ? AND time = ?", (json.dumps(name), time_text(time)))), None)

    def last(self, name: Name, most: int) -> list[Accepted]:
        """The last rows of a series, the oldest first."""
        return self._rows("series = ? ORDER BY round DESC LIMIT ?", (json.dumps(name), most))[::-1]

    def newest(self, most: int) -> list[Accepted]:
        """The last rows of all series, the oldest first."""
        return self._rows("round > 0 ORDER BY round DESC, place DESC LIMIT ?", (most,))[::-1]

    def mark_saved(self, keep: int = KEPT) -> None:
        """Write down that the saved states hold all rows; of each series that many rows are kept."""
        after = {**self._document, "saved": self._document["round"], "pending": 0, "pending_lines": 0}
        with self._database.transaction():
            for name in sorted(self._fresh):
                self._database.run(_FORGET, (name, name, keep))
            self._write_document(after | {"distrust": self.distrust})
        self._document = after | {"distrust": self.distrust}
        self._fresh.clear()

    def recorded(self) -> Recorded:
        """What was answered, and the rows since the states were saved."""
        with self._database.transaction():  # of one moment, also while somebody writes
            self._document = document = self._read_document()
            statement = f"SELECT {_COLUMNS} FROM accepted WHERE round > ? ORDER BY round, place"
            found = self._database.run(statement, (document["saved"],))
        if len(found) != document["pending"]:
            raise StoreError(f"{self.place} is damaged: of {document['pending']} rows {len(found)} are there")
        rounds = []
        for _, together in groupby(found, key=lambda row: row[2]):
            read = [self._read(row) for row in together]
            rounds.append(Round(tuple(row.cells for row, _ in read), read[0][1]))
        return Recorded(self.place, self.seen, tuple(rounds), document["distrust"])

    @property
    def place(self) -> str:
        """What errors call it."""
        return self._database.place

    def close(self) -> None:
        """Let others write."""
        self._database.close()

    def _make_tables(self, begin: Recorded) -> None:
        for statement in _TABLES:
            self._database.run(statement)
        self._database.run("INSERT INTO stream (id, document) VALUES (1, '')")
        numbers = {"round": 0, "saved": 0, "pending": 0, "pending_lines": 0, "lines": begin.seen.n_lines}
        answers = {"answers": list(begin.seen.last_answers), "distrust": begin.distrust}
        self._write_document({"format": FORMAT, "version": VERSION, "fit": self._fit, **numbers, **answers})

    def _write_document(self, document: dict[str, Any]) -> None:
        text = json.dumps(sealed(document), allow_nan=False)
        self._database.run("UPDATE stream SET document = ? WHERE id = 1", (text,))

    def _read_document(self) -> dict[str, Any]:
        if not self._database.has_tables():
            raise StoreError(f"{self.place} is damaged: it holds no stream")
        found = self._database.run("SELECT document FROM stream WHERE id = 1")
        try:
            document = json.loads(found[0][0])
            check_format(self.place, document, "a store", (FORMAT, VERSION), StoreError)
            if has_broken_seal(document, required=True):
                raise ValueError("its checksum is not that of its contents")
            for key in ("round", "saved", "pending", "pending_lines", "lines"):
                check_count(document[key], key, at_least=0, at_most=LARGEST)
            read_answers(document["answers"])
            read_level(document["distrust"])
        except StoreError:
            raise
        except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.place} is damaged or was edited: {error}") from None
        if document["fit"] != self._fit:
            raise StoreError(f"{self.place} belongs to another fit than the model: remove it to begin anew")
        return document

    def _rows(self, which: str, values: Sequence[Any]) -> list[Accepted]:
        found = self._database.run(f"SELECT {_COLUMNS} FROM accepted WHERE {which}", values)
        return [self._read(row)[0] for row in found]

    def _read(self, stored: tuple[Any, ...]) -> tuple[Accepted, int | float | None]:
        """A row, and the level at which it was distrusted."""
        *parts, seal = stored
        try:
            if seal != _seal(parts):
                raise ValueError("its checksum is another")
            series, time, _, _, row, answer = parts
            document = json.loads(row)
            accepted = Accepted(json.loads(series), time, read_cells(document["cells"]), read_cells(json.loads(answer)))
            return accepted, read_level(document["distrust"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.place} is damaged or was edited in a row: {error}") from None


def time_text(time: Any) -> str:
    """A time as a key: the same for the same moment, whatever its zone and unit."""
    if not isinstance(time, pd.Timestamp):
        return str(int(time))
    universal = time if time.tz is None else time.tz_convert("UTC").tz_localize(None)
    return universal.isoformat(timespec="nanoseconds")


def _stored(one: Accepted, number: int, place: int, distrust: int | float | None) -> tuple[Any, ...]:
    cells = json.dumps({"cells": one.cells, "distrust": distrust}, allow_nan=False)
    answer = json.dumps(one.answer, allow_nan=False)
    parts = (json.dumps(one.name), time_text(one.time), number, place, cells, answer)
    return (*parts, _seal(parts))


def _seal(parts: Sequence[Any]) -> str:
    return checksum([json.dumps(list(parts)).encode()])[:16]
