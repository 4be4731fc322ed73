"""The journal beside a saved forecaster: the lines that a stream has answered since the states were saved.

Saving the particles of every series after each line would be slow. Instead a line is appended here, with its answer,
before the answer is given; now and then the states are saved and the journal is emptied. After a kill, the forecaster
resumes from the saved states and replays the journal. The replay gives the same numbers: what a series draws is told by
its name and how many rows it has seen, and the head of the journal holds the level at which its rows were distrusted. A
row that the states hold already (after a kill between saving them and emptying the journal) is recognised by its time.
Each line has a checksum: a flipped bit would be replayed as another value.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from smc_transformer.forecaster.folder.files import SavedForecasterError, stored_fit
from smc_transformer.support.checks import check_count, check_number
from smc_transformer.support.checksums import has_broken_seal, sealed
from smc_transformer.support.durable import replacing
from smc_transformer.support.tensor_files import check_format

NAME = "stream.jsonl"
FORMAT, VERSION = "smc-transformer-stream", 2
SEALED = 2
"""Format version from which on every line must have a checksum; older ones may have one."""


class JournalError(SavedForecasterError):
    """A journal that cannot be used, and why."""


class Seen(NamedTuple):
    """How much of a stream a forecaster has seen."""

    n_lines: int = 0
    last_answer: dict[str, Any] | None = None


class Journal:
    """The journal of a folder; an absent file is an empty journal."""

    def __init__(self, folder: Path) -> None:
        self.path, self.fit = folder / NAME, stored_fit(folder)
        self.seen = Seen()  # in the life of the stream, lines with errors included
        self.n_entries = 0  # lines since the states were saved
        self.rows: list[dict[str, Any]] = []  # their observations, in order
        self.distrust: int | float | None = None  # the level at which these were distrusted, as in `Forecaster.update`
        if self.path.exists():
            self._read()

    def open(self) -> None:
        """Begin to write. A last line that a kill has left unfinished is cut off."""
        if self.path.exists():
            os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
        else:
            self.begin_anew()

    def append(self, line: int, row: dict[str, Any] | None, answer: dict[str, Any]) -> None:
        """Write down a line: its observation (None if it is an error) and its answer."""
        entry = {"line": line, "row": row, "answer": answer}
        with self.path.open("ab") as file:
            file.write(_line(entry))
        self._count(entry)

    def begin_anew(self) -> None:
        """Empty the journal, whose rows the saved states hold now; the lines stay counted."""
        head = {"format": FORMAT, "version": VERSION, "fit": self.fit, "distrust": self.distrust}
        with replacing(self.path) as file:
            file.write(_line({**head, "lines": self.seen.n_lines, "answer": self.seen.last_answer}))
        self.rows.clear()
        self.n_entries = 0

    def _read(self) -> None:
        try:
            *lines, unfinished = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise JournalError(f"{self.path} is not readable: {error.strerror or error}") from None
        if not lines:
            raise JournalError(f"{self.path} is damaged: it has no line")
        head = self._document(1, lines[0], sealed=False)
        if head.get("format") != FORMAT:
            raise JournalError(f"{self.path} is damaged: it does not begin as the journal of a stream")
        check_format(self.path, head, "a journal", (FORMAT, VERSION), JournalError)
        is_sealed = head["version"] >= SEALED
        for number, line in enumerate(lines, start=1):
            entry = self._document(number, line, is_sealed)
            try:
                self._begin(entry) if number == 1 else self._count(entry)
            except (KeyError, TypeError, ValueError) as error:
                raise JournalError(f"{self.path} is damaged in line {number}: {error!r}") from None
        if head.get("fit") != self.fit:
            raise JournalError(f"{self.path} belongs to another fit than the model beside it: remove it to begin anew")
        if is_sealed and not _is_beginning(unfinished):
            raise JournalError(
                f"{self.path} is damaged: after line {len(lines)} comes something else than the beginning of a line "
                f"(a loss of power may leave zeros); cut it off to go on from there"
            )

    def _document(self, number: int, line: bytes, sealed: bool) -> dict[str, Any]:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise JournalError(f"{self.path} is damaged in line {number}: {error}") from None
        if not isinstance(document, dict):
            raise JournalError(f"{self.path} is damaged in line {number}: it is no object")
        if has_broken_seal(document, required=sealed):
            raise JournalError(f"{self.path} is damaged or was edited in line {number}: its checksum is another")
        return document

    def _begin(self, head: dict[str, Any]) -> None:
        self.seen = Seen(check_count(head["lines"], "lines", at_least=0, at_most=2**62), _answer(head["answer"]))
        distrust = head.get("distrust")
        self.distrust = distrust
        if distrust is not None:
            check_number(distrust, "distrust", at_most=100.0, positive=True)

    def _count(self, entry: dict[str, Any]) -> None:
        row = entry["row"]
        self.seen = Seen(check_count(entry["line"], "line", at_most=2**62), _answer(entry["answer"]))
        self.n_entries += 1
        if row is not None:
            if not isinstance(row, dict):
                raise TypeError(f"a row must be an object, got {type(row).__name__}")
            self.rows.append(row)


def _answer(stored: Any) -> dict[str, Any] | None:
    if stored is not None and not isinstance(stored, dict):
        raise TypeError(f"an answer must be an object, got {type(stored).__name__}")
    return stored


def _is_beginning(tail: bytes) -> bool:
    """Whether a kill can have left this of a line: the beginning of an entry, and not all of it."""
    known = b'{"line": '
    if not (tail.startswith(known) or known.startswith(tail)) or any(not 32 <= one < 127 for one in tail):
        return False
    try:
        return has_broken_seal(json.loads(tail[:-1]), required=True)  # whole, but for the line break
    except (ValueError, AttributeError):
        return True


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(sealed(value), allow_nan=False).encode() + b"\n"
