"""The rows that a stream has accepted, with their answers.

A batch of rows is written in one transaction before any of its answers is given, so an answered row survives a kill and
a loss of power. Rows are numbered by rounds: those of one round, at most one of a series, went through the filter
together. The state of a series, written now and then, holds its rows up to a round; the later ones are replayed when
the forecaster is loaded. A series without a state here has the one in the folder. The last rows of each series are kept
longer, so that a row that is sent again is answered as before, and people can be shown what was forecast. Each row has
a checksum: a flipped bit would be replayed as another value.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pandas as pd

from smc_transformer.forecaster.folder.recorded import Recorded, Round, Seen, read_answers, read_cells, read_level
from smc_transformer.forecaster.folder.store.databases import Database, StoreError
from smc_transformer.forecaster.table import Name
from smc_transformer.support.checks import check_count
from smc_transformer.support.checksums import checksum, has_broken_seal, sealed
from smc_transformer.support.tensor_files import check_format

FORMAT, VERSION = "smc-transformer-accepted", 3
COUNTS_ALL = 1
"""Version in which `pending` counted all rows since the oldest state, and not only those that no state holds."""
KEPT = 100
"""Rows of each series that are kept once the states hold them."""
STATES_AT_ONCE = 256
"""States that are read or written together: bounds the memory."""
LARGEST = 2**62
"""Of a count."""

_COLUMNS = "series, time, round, place, cells, answer, checksum"
_TABLES = (
    "CREATE TABLE stream (id INTEGER PRIMARY KEY, document TEXT NOT NULL)",
    "CREATE TABLE accepted (series TEXT NOT NULL, time TEXT NOT NULL, round BIGINT NOT NULL, place BIGINT NOT NULL, "
    "cells TEXT NOT NULL, answer TEXT NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (series, time))",
    "CREATE INDEX accepted_by_round ON accepted (round, place)",
    "CREATE INDEX accepted_by_series ON accepted (series, round)",
    "CREATE TABLE states (series TEXT PRIMARY KEY, round BIGINT NOT NULL, state {bytes} NOT NULL)",
)
_INSERT = f"INSERT INTO accepted ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT = (
    "INSERT INTO states (series, round, state) VALUES (?, ?, ?) "
    "ON CONFLICT (series) DO UPDATE SET round = excluded.round, state = excluded.state"
)
# Of rows beyond `saved`, those that the state of their series does not hold.
_BEYOND = (
    "FROM accepted LEFT JOIN states ON states.series = accepted.series "
    "WHERE accepted.round > ? AND accepted.round > COALESCE(states.round, 0)"
)
_OWN_COLUMNS = ", ".join(f"accepted.{column}" for column in _COLUMNS.split(", "))
_PENDING = f"SELECT {_OWN_COLUMNS} {_BEYOND} ORDER BY accepted.round, accepted.place"
_FRESH = (
    f"SELECT accepted.series, min(accepted.round), count(*) {_BEYOND} "
    "GROUP BY accepted.series ORDER BY min(accepted.round)"
)
_STATES = "SELECT series, round, state FROM states WHERE series > ? ORDER BY series LIMIT ?"
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


class SavedState(NamedTuple):
    """The state of a series."""

    name: Name
    round: int  # up to which it holds the rows
    packed: bytes


class Store:
    """The tables of a folder. One process writes to them at a time."""

    def __init__(self, database: Database, fit: str, begin: Recorded | None = None) -> None:
        """Read what is there. A database without tables gets some, for a stream that goes on after `begin`."""
        self._database, self._fit = database, fit
        if begin is not None and not database.has_tables():
            with database.transaction():
                self.make_tables(begin)
        with database.transaction():
            self._document = self._read_document()
            fresh = database.run(_FRESH, (self._document["saved"],))
        # Of each series that has got rows since its state was saved: the round of the first, and how many there are.
        self._fresh: dict[str, list[int]] = {series: [first, n_rows] for series, first, n_rows in fresh}
        self.distrust: int | float | None = self._document["distrust"]  # of the rows to come

    @property
    def seen(self) -> Seen:
        """How many lines were answered in the life of the stream, and the last answers."""
        return Seen(self._document["lines"], tuple(self._document["answers"]))

    @property
    def n_pending(self) -> int:
        """Lines since the states were saved."""
        return self._document["pending_lines"]

    @property
    def n_begun(self) -> int:
        """Series that have begun with a row of the stream, in its life."""
        return self._document["begun"]

    @property
    def round(self) -> int:
        """The last one."""
        return self._document["round"]

    def append(
        self,
        rounds: Sequence[Sequence[Accepted]],
        *,
        lines: int,
        answers: Sequence[dict[str, Any]] = (),
        begun: int = 0,
    ) -> None:
        """Write down rows, round by round, and that so many lines more were answered, the last ones like this.

        With so many of the rows a series has begun. Its state is not written here: it is replayed from its rows.
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
            "begun": before["begun"] + begun,
        }
        with self._database.transaction():
            if rows:
                self._database.run_many(_INSERT, rows)
            self._write_document(after)
        self._document = after
        for series, _, number, *_ in rows:
            self._count(series, number)

    def find(self, name: Name, time: Any) -> Accepted | None:
        """The row of a series at a time, if it is still kept."""
        return next(iter(self._rows("series = ? AND time = ?", (json.dumps(name), time_text(time)))), None)

    def last(self, name: Name, most: int) -> list[Accepted]:
        """The last rows of a series, the oldest first."""
        return self._rows("series = ? ORDER BY round DESC LIMIT ?", (json.dumps(name), most))[::-1]

    def newest(self, most: int) -> list[Accepted]:
        """The last rows of all series, the oldest first."""
        return self._rows("round > 0 ORDER BY round DESC, place DESC LIMIT ?", (most,))[::-1]

    def fresh(self, at_least: int = 1, most: int | None = None) -> list[Name]:
        """Series that have got so many rows since their state was saved, those that wait longest first."""
        due = (_name_in(series) for series, (_, n_rows) in self._fresh.items() if n_rows >= at_least)
        return list(islice(due, most))

    def put_states(self, states: Mapping[Name, bytes], keep: int = KEPT) -> None:
        """Save the states of some series, which hold all their rows; of each of these that many rows are kept."""
        put = {json.dumps(name): state for name, state in states.items()}
        # The first that is left has waited longest: series come here with their first row.
        oldest = next((first for series, (first, _) in self._fresh.items() if series not in put), None)
        saved = self._document["round"] if oldest is None else oldest - 1
        held = sum(self._fresh[series][1] for series in put if series in self._fresh)
        after = {**self._document, "saved": saved, "pending": self._document["pending"] - held}
        if oldest is None:
            after["pending_lines"] = 0
        with self._database.transaction():
            self._database.run_many(_PUT, [(name, self._document["round"], state) for name, state in put.items()])
            self._database.run_many(_FORGET, [(name, name, keep) for name in put])
            self._write_document(after)
        self._document = after
        for series in put:
            self._fresh.pop(series, None)

    def state(self, name: Name) -> SavedState:
        """The state of a series, which must have been saved."""
        found = self._database.run("SELECT series, round, state FROM states WHERE series = ?", (json.dumps(name),))
        if not found:
            raise StoreError(f"{self.place} is damaged: the state of series {json.dumps(name)} is missing")
        return self._state(*found[0])

    def mark_saved(self, keep: int = KEPT) -> None:
        """Write down that the states in the folder hold all rows; of each series that many rows are kept."""
        after = {**self._document, "saved": self._document["round"], "pending": 0, "pending_lines": 0}
        with self._database.transaction():
            self._database.run("DELETE FROM states")
            self._database.run_many(_FORGET, [(name, name, keep) for name in self._fresh])
            self._write_document(after)
        self._document = after
        self._fresh.clear()

    def recorded(self, use: Callable[[Sequence[SavedState]], None] = lambda states: None) -> Recorded:
        """What was answered, and the rows since the states of their series were saved; `use` is given these states."""
        with self._database.transaction():  # of one moment, also while somebody writes
            self._document = document = self._read_document()
            after = ""
            while found := self._database.run(_STATES, (after, STATES_AT_ONCE)):
                use([self._state(*one) for one in found])
                after = found[-1][0]
            rows = self._database.run(_PENDING, (document["saved"],))
        if len(rows) != document["pending"]:
            raise StoreError(f"{self.place} is damaged: of {document['pending']} rows {len(rows)} are there")
        # Each series has a random stream of its own, so rows may be replayed beside others than they were taken with:
        # the k-th of each series together.
        rounds: dict[tuple[int, int | float | None], list[Accepted]] = {}
        depth: dict[str, int] = {}
        for row in rows:
            accepted, distrust = self._read(row)
            depth[row[0]] = depth.get(row[0], 0) + 1
            rounds.setdefault((depth[row[0]], distrust), []).append(accepted)
        ordered = sorted(rounds.items(), key=lambda pair: pair[0][0])
        replayed = tuple(
            Round(tuple(one.cells for one in taken), distrust, tuple(one.name for one in taken))
            for (_, distrust), taken in ordered
        )
        return Recorded(self.place, self.seen, replayed, document["distrust"])

    @property
    def place(self) -> str:
        """What errors call it."""
        return self._database.place

    def close(self) -> None:
        """Let others write."""
        self._database.close()

    def make_tables(self, begin: Recorded) -> None:
        """Those of a store that begins."""
        for statement in _TABLES:
            self._database.run(statement.replace("{bytes}", self._database.bytes_type))
        self._database.run("INSERT INTO stream (id, document) VALUES (1, '')")
        numbers = {"round": 0, "saved": 0, "pending": 0, "pending_lines": 0, "lines": begin.seen.n_lines, "begun": 0}
        answers = {"answers": list(begin.seen.last_answers), "distrust": begin.distrust}
        self._write_document({"format": FORMAT, "version": VERSION, "fit": self._fit, **numbers, **answers})

    def _count(self, series: str, number: int) -> None:
        self._fresh.setdefault(series, [number, 0])[1] += 1

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
            document.setdefault("begun", 0)
            for key in ("round", "saved", "pending", "pending_lines", "lines", "begun"):
                check_count(document[key], key, at_least=0, at_most=LARGEST)
            read_answers(document["answers"])
            read_level(document["distrust"])
        except StoreError:
            raise
        except (IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.place} is damaged or was edited: {error}") from None
        if document["fit"] != self._fit:
            raise StoreError(f"{self.place} belongs to another fit than the model: remove it to begin anew")
        return self._upgraded(document) if document["version"] == COUNTS_ALL else {**document, "version": VERSION}

    def _upgraded(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document of the first version, with what this one counts."""
        ((n_rows,),) = self._database.run("SELECT count(*) FROM accepted WHERE round > ?", (document["saved"],))
        if n_rows != document["pending"]:
            raise StoreError(f"{self.place} is damaged: of {document['pending']} rows {n_rows} are there")
        ((pending,),) = self._database.run(f"SELECT count(*) {_BEYOND}", (document["saved"],))
        return {**document, "version": VERSION, "pending": pending}

    def _rows(self, which: str, values: Sequence[Any]) -> list[Accepted]:
        found = self._database.run(f"SELECT {_COLUMNS} FROM accepted WHERE {which}", values)
        return [self._read(row)[0] for row in found]

    def _state(self, series: str, number: int, packed: Any) -> SavedState:
        try:
            return SavedState(_name_in(series), number, bytes(packed))
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.place} is damaged or was edited in a state: {error}") from None

    def _read(self, stored: tuple[Any, ...]) -> tuple[Accepted, int | float | None]:
        """A row, and the level at which it was distrusted."""
        *parts, seal = stored
        try:
            if seal != seal_of_row(parts):
                raise ValueError("its checksum is another")
            series, time, _, _, row, answer = parts
            document = json.loads(row)
            accepted = Accepted(_name_in(series), time, read_cells(document["cells"]), read_cells(json.loads(answer)))
            return accepted, read_level(document["distrust"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.place} is damaged or was edited in a row: {error}") from None


_encoded = json.JSONEncoder(allow_nan=False).encode  # made once: json.dumps makes one for each call with options


def time_text(time: Any) -> str:
    """A time as a key: the same for the same moment, whatever its zone and unit."""
    if not isinstance(time, pd.Timestamp):
        return str(int(time))
    universal = time if time.tz is None else time.tz_convert("UTC").tz_localize(None)
    return universal.isoformat(timespec="nanoseconds")


def _stored(one: Accepted, number: int, place: int, distrust: int | float | None) -> tuple[Any, ...]:
    cells = _encoded({"cells": one.cells, "distrust": distrust})
    parts = (json.dumps(one.name), time_text(one.time), number, place, cells, _encoded(one.answer))
    return (*parts, seal_of_row(parts))


def seal_of_row(parts: Sequence[Any]) -> str:
    """The checksum of what else is stored of a row."""
    return checksum([json.dumps(list(parts)).encode()])[:16]


def _name_in(text: str) -> Name:
    """The name of a series, which JSON may hold as a list: it has no tuples."""
    found = json.loads(text)
    return tuple(found) if isinstance(found, list) else found
