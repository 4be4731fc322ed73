"""A forecaster in service: one line at a time, each answered, and no answered line is lost when the process is killed.

docs/command_line.md describes lines and answers.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from smc_transformer.forecaster.facade import Forecaster
from smc_transformer.forecaster.folder.access import Writer
from smc_transformer.forecaster.rows import Row, RowError, future_series, parse_row
from smc_transformer.forecaster.table import TableError
from smc_transformer.support.as_json import plain, records


class Service:
    """Follows series line by line, as the only writer to the folder until it is closed.

    Args:
        folder: a saved forecaster.
        horizon: steps ahead of the forecasts in answers.
        levels: percentages of their intervals, and of the flags of surprises.
        n_paths: sampled futures behind forecasts.
        save_every: lines between two saves of the particle states; the lines since the last save are in the journal.
        most_steps: how far a series may jump ahead of its last row.
        distrust: level of the interval outside which a value is treated as missing (see `Forecaster.update`).

    Attributes:
        distrusted_before: the level at which the rows of the journal were distrusted.
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
        self.horizon, self.levels, self.n_paths = horizon, list(levels), n_paths
        self.save_every, self.most_steps = save_every, most_steps
        self._writer = Writer(folder)
        try:
            self.forecaster = Forecaster.load(folder)
            self.journal = self._writer.journal
            self.journal.open()
            self.distrusted_before = self.journal.distrust
            if distrust != self.journal.distrust:
                # A journal has one level for all of its rows: those of another level are saved first.
                self.journal.distrust = distrust
                self._writer.save(self.forecaster.fitted)
        except BaseException:
            self.close()
            raise
        self.n_errors = 0

    @property
    def n_taken(self) -> int:
        """Lines answered in the life of the stream."""
        return self.journal.n_lines

    @property
    def last_answer(self) -> dict[str, Any] | None:
        """The answer to the last line, which a kill may have kept from being printed."""
        return self.journal.last_answer

    def answers(self, lines: Iterable[bytes], *, skip: int = 0) -> Iterator[dict[str, Any]]:
        """The answer to each line, given once it is in the journal. Blank lines are counted, but not answered.

        Args:
            lines: JSON lines.
            skip: how many of them were answered before.
        """
        start = self.n_taken - skip
        for number, line in enumerate(lines, start=1):
            if number <= skip or not line.strip():
                continue
            yield self.take(line, start + number)
        self.save()

    def take(self, line: bytes, number: int) -> dict[str, Any]:
        """Answer one line."""
        cells = None
        try:
            row = parse_row(line, self.forecaster.fitted, self.horizon, self.most_steps)
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
        """Save the particle states and empty the journal."""
        if self.journal.n_entries:
            self._writer.save(self.forecaster.fitted)

    def close(self) -> None:
        """Stop, without saving: the lines since the last save are in the journal."""
        self._writer.close()

    def _update(self, row: Row) -> list[dict[str, Any]]:
        settings, rows = self.forecaster.settings, row.table(self.forecaster.settings)
        try:
            if row.future is not None:  # a row whose future cannot be used is an error as a whole
                self.forecaster.fitted.panel.known(future_series(row, self.forecaster.settings, self.horizon))
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
        ahead = {row.name: future_series(row, self.forecaster.settings, self.horizon)}
        forecast = fitted.forecast(fitted.following, ahead, self.n_paths, fitted.generator.clone_state())
        return records(forecast.table(self.levels).drop(columns=[settings.id_column]))
