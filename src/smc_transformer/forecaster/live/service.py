"""Takes lines, gives answers; what has been answered survives a kill."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.forecaster.folder import stored_fit
from smc_transformer.forecaster.live.journal import Journal, JournalError
from smc_transformer.forecaster.live.rows import Row, RowError, future_series, parse_row
from smc_transformer.support.as_json import plain, records

if TYPE_CHECKING:
    from smc_transformer.forecaster import Forecaster

UNBOUNDED = 2**62
"""Steps: rows of the journal have been looked at before."""


def recover(folder: Path) -> "Forecaster":
    """The forecaster saved in a folder, after all that a stream has taken, even if that was killed."""
    return _recovered(folder)[0]


def _recovered(folder: Path) -> "tuple[Forecaster, Journal]":
    from smc_transformer.forecaster import Forecaster

    forecaster, journal = Forecaster.load(folder), Journal(folder)
    for cells in journal.rows:
        try:
            row = parse_row(json.dumps(cells).encode(), forecaster, 0, UNBOUNDED)
        except RowError:
            continue  # not after the last row: the state was saved with it
        forecaster.update(row.table(forecaster), distrust=journal.distrust)
    return forecaster, journal


class Service:
    """Follows series line by line.

    Args:
        folder: a saved forecaster, whose state goes on from line to line.
        horizon: steps ahead of the forecasts in answers.
        levels: percentages of their intervals, and of the flags of surprises.
        n_paths: sampled futures behind forecasts.
        save_every: lines between two saves of the state; those since the last one are in the journal.
        most_steps: how far a series may jump ahead of its last row.
        distrust: level of the interval outside which a value is taken for missing (see `Forecaster.update`).

    Attributes:
        distrusted_before: the level of the lines before, if there were any.
    """

    def __init__(
        self,
        folder: Path,
        *,
        horizon: int = 1,
        levels: Sequence[int | float] = (80, 95),
        n_paths: int = 1000,
        save_every: int = 500,
        most_steps: int = 1000,
        distrust: int | float | None = None,
    ) -> None:
        self.folder, self.horizon, self.levels, self.n_paths = folder, horizon, list(levels), n_paths
        self.save_every, self.most_steps = save_every, most_steps
        self.forecaster, self.journal = _recovered(folder)
        self.journal.open()
        self.distrusted_before = self.journal.distrust
        if distrust != self.journal.distrust:
            # All lines of a journal are taken again in the same way: those that were taken in another go first.
            self.journal.distrust = distrust
            self._save_and_begin_anew()
        self.n_errors = 0

    @property
    def n_taken(self) -> int:
        """Lines taken in the life of the stream."""
        return self.journal.n_lines

    @property
    def last_answer(self) -> dict[str, Any] | None:
        """The answer to the last line taken, which somebody who was killed may not have given."""
        return self.journal.last_answer

    def answers(self, lines: Iterable[bytes], *, skip: int = 0) -> Iterator[dict[str, Any]]:
        """The answer to each line, given when what it says is safe. Blank lines are counted, but not answered.

        Args:
            lines: JSON lines.
            skip: how many of them were taken before.
        """
        start = self.n_taken - skip
        for number, line in enumerate(lines, start=1):
            if number <= skip or not line.strip():
                continue
            yield self.take(line, start + number)
        self.save()

    def take(self, line: bytes, number: int) -> dict[str, Any]:
        """Take one line."""
        cells = None
        try:
            row = parse_row(line, self.forecaster, self.horizon, self.most_steps)
            surprise = self._update(row)
        except RowError as error:
            self.n_errors += 1
            answer: dict[str, Any] = {"line": number, "error": str(error)}
        else:
            cells = row.cells
            answer = self._answer(number, row, surprise)
        self.journal.append(number, cells, answer)
        if self.journal.n_entries >= self.save_every:
            self.save()
        return answer

    def save(self) -> None:
        """Save the state."""
        if self.journal.n_entries:
            self._save_and_begin_anew()

    def close(self) -> None:
        """Stop; what was taken is safe."""
        self.journal.close()

    def _save_and_begin_anew(self) -> None:
        if self.journal.rows:
            if stored_fit(self.folder) != self.journal.fit:
                raise JournalError(f"{self.folder} holds another fit now: what was taken since the last save is lost")
            self.forecaster.save(self.folder)
        self.journal.begin_anew()

    def _update(self, row: Row) -> list[dict[str, Any]]:
        from smc_transformer.forecaster import TableError

        settings, rows = self.forecaster.settings, row.table(self.forecaster)
        try:
            if row.future is not None:  # a line with a future that cannot be forecast is not taken at all
                self.forecaster.fitted.panel.known(future_series(row, self.forecaster, self.horizon))
            table = self.forecaster.update(rows, self.levels, distrust=self.journal.distrust)
        except TableError as error:
            raise RowError(" ".join(str(error).split())) from None
        return records(table.drop(columns=[settings.id_column, settings.time_column]))

    def _answer(self, number: int, row: Row, surprise: list[dict[str, Any]]) -> dict[str, Any]:
        settings = self.forecaster.settings
        return {
            "line": number,
            settings.id_column: row.name,
            settings.time_column: plain(row.time),
            "surprise": surprise,
            "forecast": self._forecast(row),
        }

    def _forecast(self, row: Row) -> list[dict[str, Any]] | None:
        """The next steps, or None where inputs that should be known ahead are not."""
        if row.future is None:
            return None
        fitted, settings = self.forecaster.fitted, self.forecaster.settings
        ahead = {row.name: future_series(row, self.forecaster, self.horizon)}
        forecast = fitted.forecast(fitted.following, ahead, self.n_paths, fitted.generator.clone_state())
        return records(forecast.table(self.levels).drop(columns=[settings.id_column]))
