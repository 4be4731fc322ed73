"""The journal that earlier versions kept beside a saved forecaster: lines answered since the states were saved.

It is read and replayed; whoever writes to the folder moves on to a store. A row that the states hold already (after a
kill between saving them and emptying the journal) is recognised by its time. A last line that a kill has left
unfinished was never answered.
"""

import json
from pathlib import Path
from typing import Any

from smc_transformer.forecaster.folder.files import SavedForecasterError
from smc_transformer.forecaster.folder.recorded import Recorded, Round, Seen, read_answers, read_cells, read_level
from smc_transformer.support.checks import check_count
from smc_transformer.support.checksums import has_broken_seal
from smc_transformer.support.tensor_files import check_format

NAME = "stream.jsonl"
FORMAT, VERSION = "smc-transformer-stream", 2
SEALED = 2
"""Format version from which on every line must have a checksum; older ones may have one."""
LARGEST = 2**62


class JournalError(SavedForecasterError):
    """A journal that cannot be used, and why."""


def read_journal(folder: Path, fit: str) -> Recorded:
    """What a journal tells; an absent file is an empty journal."""
    path = folder / NAME
    try:
        *lines, unfinished = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Recorded()
    except OSError as error:
        raise JournalError(f"{path} is not readable: {error.strerror or error}") from None
    if not lines:
        raise JournalError(f"{path} is damaged: it has no line")
    head = _document(path, 1, lines[0], sealed=False)
    if head.get("format") != FORMAT:
        raise JournalError(f"{path} is damaged: it does not begin as the journal of a stream")
    check_format(path, head, "a journal", (FORMAT, VERSION), JournalError)
    is_sealed, rounds, seen, distrust = head["version"] >= SEALED, [], Seen(), None
    for number, line in enumerate(lines, start=1):
        entry = _document(path, number, line, is_sealed)
        try:
            if number == 1:
                seen = Seen(check_count(entry["lines"], "lines", at_least=0, at_most=LARGEST), _answer(entry["answer"]))
                distrust = read_level(entry.get("distrust"))
            else:
                seen = Seen(check_count(entry["line"], "line", at_most=LARGEST), _answer(entry["answer"]))
                if entry["row"] is not None:
                    rounds.append(Round((read_cells(entry["row"]),), distrust))
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(f"{path} is damaged in line {number}: {error!r}") from None
    if head.get("fit") != fit:
        raise JournalError(f"{path} belongs to another fit than the model beside it: remove it to begin anew")
    if is_sealed and not _is_beginning(unfinished):
        raise JournalError(
            f"{path} is damaged: after line {len(lines)} comes something else than the beginning of a line "
            f"(a loss of power may leave zeros); cut it off to go on from there"
        )
    return Recorded(str(path), seen, tuple(rounds), distrust)


def _document(path: Path, number: int, line: bytes, sealed: bool) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"{path} is damaged in line {number}: {error}") from None
    if not isinstance(document, dict):
        raise JournalError(f"{path} is damaged in line {number}: it is no object")
    if has_broken_seal(document, required=sealed):
        raise JournalError(f"{path} is damaged or was edited in line {number}: its checksum is another")
    return document


def _answer(stored: Any) -> tuple[dict[str, Any], ...]:
    return () if stored is None else read_answers([stored])


def _is_beginning(tail: bytes) -> bool:
    """Whether a kill can have left this of a line: the beginning of an entry, and not all of it."""
    known = b'{"line": '
    if not (tail.startswith(known) or known.startswith(tail)) or any(not 32 <= one < 127 for one in tail):
        return False
    try:
        return has_broken_seal(json.loads(tail[:-1]), required=True)  # whole, but for the line break
    except (ValueError, AttributeError):
        return True
