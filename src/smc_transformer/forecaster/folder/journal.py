"""The journal beside a saved forecaster: the lines that a stream has answered since the states were saved.

Saving the particles of every series after each line would be slow. Instead a line is appended here, with its answer,
before the answer is given; now and then the states are saved and the journal is emptied. After a kill, the forecaster
resumes from the saved states and replays the journal. The replay gives the same numbers: the states hold the state of
the random generator, and the head of the journal holds the level at which its rows were distrusted. A row that the
states hold already (after a kill between saving them and emptying the journal) is recognised by its time.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from smc_transformer.forecaster.folder.files import SavedForecasterError, stored_fit

NAME = "stream.jsonl"
FORMAT, VERSION = "smc-transformer-stream", 1


class JournalError(SavedForecasterError):
    """A journal that cannot be used, and why."""


class Seen(NamedTuple):
    """How much of a stream a forecaster has seen."""

    n_lines: int = 0
    last_answer: dict[str, Any] | None = None


class Journal:
    """The journal of a folder; an absent file is an empty journal.

    Attributes:
        n_lines: lines answered in the life of the stream, errors included.
        last_answer: the answer to the last of them.
        n_entries: lines since the states were saved.
        rows: their observations, in order.
        distrust: the level at which these were distrusted (see `Forecaster.update`); None: not at all.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.fit = stored_fit(folder)
        self.n_lines = 0
        self.last_answer: dict[str, Any] | None = None
        self.n_entries = 0
        self.rows: list[dict[str, Any]] = []
        self.distrust: int | float | None = None
        self._file: int | None = None
        if self.path.exists():
            self._read()

    def open(self) -> None:
        """Begin to write. A last line that a kill has left unfinished is cut off."""
        if not self.path.exists():
            self.begin_anew()
            return
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.truncate(self._file, self.path.read_bytes().rfind(b"\n") + 1)

    @property
    def seen(self) -> Seen:
        """What a forecaster has seen that holds all rows up to now."""
        return Seen(self.n_lines, self.last_answer)

    def append(self, line: int, row: dict[str, Any] | None, answer: dict[str, Any]) -> None:
        """Write down a line: its observation (None if it is an error) and its answer."""
        assert self._file is not None, "the journal is not open"
        entry = {"line": line, "row": row, "answer": answer}
        self._write(self._file, entry)
        self._count(entry)

    def begin_anew(self) -> None:
        """Empty the journal, whose rows the saved states hold now; the lines stay counted."""
        unfinished = self.path.with_name(NAME + ".unfinished")
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        head = {"format": FORMAT, "version": VERSION, "fit": self.fit, "distrust": self.distrust}
        self._write(file, {**head, "lines": self.n_lines, "answer": self.last_answer})
        os.replace(unfinished, self.path)
        self.close()
        self._file = file
        self.rows.clear()
        self.n_entries = 0

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> None:
        *lines, _ = self.path.read_bytes().split(b"\n")  # what follows the last line break is unfinished
        try:
            head = json.loads(lines[0])
            if head["format"] != FORMAT or head["version"] > VERSION:
                raise JournalError(f"{self.path} has another format: {head['format']!r}, version {head['version']}")
            self.n_lines, self.last_answer = head["lines"], head["answer"]
            self.distrust = head.get("distrust")
            for entry in map(json.loads, lines[1:]):
                self._count(entry)
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, IndexError) as error:
            raise JournalError(f"{self.path} is damaged: {error!r}") from None
        if head["fit"] != self.fit:
            raise JournalError(f"{self.path} belongs to another fit than the model beside it: remove it to begin anew")

    def _count(self, entry: dict[str, Any]) -> None:
        self.n_lines, self.last_answer = entry["line"], entry["answer"]
        self.n_entries += 1
        if entry["row"] is not None:
            self.rows.append(entry["row"])

    @staticmethod
    def _write(file: int, value: dict[str, Any]) -> None:
        data = json.dumps(value, allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(file, data) :]
