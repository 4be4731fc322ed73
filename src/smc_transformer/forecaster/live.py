"""A forecaster in service: rows in, answers out, and no answered row is lost, taken twice or changed.

docs/live.md has the guarantees, docs/command_line.md describes lines and answers.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smc_transformer.forecaster.answering import Answer, Answering, Judged, Taken
from smc_transformer.forecaster.facade import Forecaster
from smc_transformer.forecaster.folder.access import Writer
from smc_transformer.forecaster.retiring import Retired
from smc_transformer.forecaster.rows import RowError, row_series
from smc_transformer.forecaster.table import Name
from smc_transformer.support.checks import check_count

NEW_SERIES = 1000
"""Series that rows may begin, unless it is said otherwise: they take 0.2 to 0.4 GB of memory."""


@dataclass(kw_only=True, eq=False)
class Service:
    """Follows series row by row, as the only writer to the folder until it is closed."""

    folder: Path = field(kw_only=False)  # a saved forecaster
    store: str | None = None  # URL of a database for the accepted rows; None: as the folder says, or SQLite in it
    horizon: int = 1  # this and the next four as in `Answering`
    levels: Sequence[int | float] = (80, 95)
    n_paths: int = 1000
    most_steps: int = 1000
    distrust: int | float | None = None
    save_every: int = 500  # lines between two saves of the particle states; the rows since the last are replayed
    retire_after: int | float | None = None  # seconds of silence after which a series leaves the memory
    clock: Callable[[], float] = time.monotonic  # by which silence is measured
    new_series: int = NEW_SERIES  # that rows may begin in the life of the store; 0: rows of unknown series are refused

    def __post_init__(self) -> None:
        check_count(self.new_series, "new_series", at_least=0)
        names = ("horizon", "levels", "n_paths", "most_steps", "distrust")
        self._answering = Answering(**{name: getattr(self, name) for name in names})
        self.n_errors = 0
        self._open()
        self.distrusted_before = self.accepted.distrust
        self.accepted.distrust = self.distrust  # of the rows from now on: each row has its own

    def _open(self) -> None:
        self._writer = Writer(self.folder, self.store)
        try:
            self.forecaster = Forecaster.load(self.folder)
            self.accepted = self._writer.open_store(self.forecaster.fitted)
            self.retired = Retired(self.forecaster.fitted, self._writer, self.retire_after, self.clock)
            self.n_series = self._count_series()
        except BaseException:
            self.close()
            raise

    def reopen(self) -> None:
        """Go back to what is on the disk, after an error that came between a filter step and its writing down."""
        self.close()
        self._open()
        self.accepted.distrust = self.distrust

    @property
    def n_taken(self) -> int:
        """Lines answered in the life of the stream."""
        return self.accepted.seen.n_lines

    @property
    def last_answers(self) -> tuple[Answer, ...]:
        """The answers to the last lines, which a kill may have kept from being printed."""
        return self.accepted.seen.last_answers

    def answers(self, batches: Iterable[Sequence[bytes]], *, skip: int = 0) -> Iterator[list[Answer]]:
        """The answers to the lines of each batch, given once they are in the store. Blank lines are not answered.

        The first lines, as many as `skip` says, were answered before.
        """
        start, number = self.n_taken - skip, 0
        for lines in batches:
            numbered = list(enumerate(lines, start=number + 1))
            number += len(lines)
            taken = [(start + one, line) for one, line in numbered if one > skip and line.strip()]
            if taken:
                yield self.take_lines(taken)
        self.save()

    def take(self, line: bytes, number: int) -> Answer:
        """Answer one line."""
        return self.take_lines([(number, line)])[0]

    def take_lines(self, lines: Sequence[tuple[int, bytes]]) -> list[Answer]:
        """Answer lines, which have numbers, in one transaction."""
        (rounds, found), n_begun = self._judge([line for _, line in lines])
        answers = []
        for (number, _), one in zip(lines, found, strict=True):
            self.n_errors += isinstance(one, RowError)
            answer = {"error": str(one)} if isinstance(one, RowError) else one.answer
            answers.append({"line": number, **answer})
        self.accepted.append(rounds, lines=lines[-1][0] - self.n_taken, answers=answers, begun=n_begun)
        if self.accepted.n_pending >= self.save_every:
            self.save()
        while self.retired.retire():
            pass
        return answers

    def accept(self, given: Sequence[Any]) -> list[Taken | RowError]:
        """Take objects of JSON, in one transaction: the answer to each, or why it was refused.

        Rows of one series must come in the order of their times. The others are not touched by one that is refused.
        """
        (rounds, found), n_begun = self._judge(given)
        if rounds:
            self.accepted.append(rounds, lines=sum(map(len, rounds)), begun=n_begun)
        return found

    def _judge(self, given: Sequence[Any]) -> tuple[Judged, int]:
        """What became of rows, and how many series have begun with them."""
        n_before = self.n_series
        beginners = max(0, self.new_series - self.accepted.n_begun) if self.new_series else None
        found = self._answering.judge(self.forecaster, given, self.accepted.find, self.retired, beginners)
        self.retired.hear(one.name for together in found.rounds for one in together)
        self.n_series = self._count_series()
        return found, self.n_series - n_before

    def _count_series(self) -> int:
        """Series that are known, in memory or away; a series that is just leaving is in both for a moment."""
        return len(self.forecaster.fitted.following.series) + len(self.retired.away)

    def last_times(self) -> dict[Name, Any]:
        """The time of the last row of each series, in memory or away."""
        return {**self.forecaster.fitted.following.last_times(), **self.retired.away}

    def find_series(self, text: str, *, fetching: bool = True) -> Name:
        """The series that is followed under this name, in memory from now on.

        Raises:
            UnknownSeriesError: there is none.
        """
        fitted, away = self.forecaster.fitted, self.retired.away
        name = row_series({fitted.settings.id_column: text}, fitted, away)
        if fetching and name in away:
            self.retired.fetch([name])
        return name

    def save(self, *, at_least: int = 1, most: int | None = None) -> None:
        """Save the states of series that have got so many rows since they were saved; at most so many of them."""
        if self.accepted.n_pending:
            self._writer.save_fresh(self.forecaster.fitted, at_least=at_least, most=most)

    def close(self) -> None:
        """Stop, without saving: the rows since the last save are in the store."""
        self._writer.close()
