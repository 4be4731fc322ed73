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
        unfinished = self.path.with_name(NAME + ".unfinished")
        head = {"format": FORMAT, "version": VERSION, "fit": self.fit, "distrust": self.distrust}
        unfinished.write_bytes(_line({**head, "lines": self.seen.n_lines, "answer": self.seen.last_answer}))
        os.replace(unfinished, self.path)
        self.rows.clear()
        self.n_entries = 0

    def _read(self) -> None:
        *lines, _ = self.path.read_bytes().split(b"\n")  # what follows the last line break is unfinished
        try:
            head = json.loads(lines[0])
            if head["format"] != FORMAT or head["version"] > VERSION:
                raise JournalError(f"{self.path} has another format: {head['format']!r}, version {head['version']}")
            self.seen, self.distrust = Seen(head["lines"], head["answer"]), head.get("distrust")
            for entry in map(json.loads, lines[1:]):
                self._count(entry)
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, IndexError) as error:
            raise JournalError(f"{self.path} is damaged: {error!r}") from None
        if head["fit"] != self.fit:
            raise JournalError(f"{self.path} belongs to another fit than the model beside it: remove it to begin anew")

    def _count(self, entry: dict[str, Any]) -> None:
        self.seen = Seen(entry["line"], entry["answer"])
        self.n_entries += 1
        if entry["row"] is not None:
            self.rows.append(entry["row"])


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, allow_nan=False).encode() + b"\n"
