"""A forecaster in service: one line at a time, each answered, and no answered line is lost when the process is killed.

docs/command_line.md describes lines and answers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smc_transformer.forecaster.facade import Forecaster
from smc_transformer.forecaster.folder.access import Writer
from smc_transformer.forecaster.frequency import TimeOutOfReachError
from smc_transformer.forecaster.rows import Row, RowError, future_series, parse_row
from smc_transformer.forecaster.table import TableError
from smc_transformer.support.as_json import plain, records


@dataclass(kw_only=True, eq=False)
class Service:
    """Follows series line by line, as the only writer to the folder until it is closed."""

    folder: Path = field(kw_only=False)  # a saved forecaster
    horizon: int = 1  # steps ahead of the forecasts in answers
    levels: Sequence[int | float] = (80, 95)  # percentages of their intervals, and of the flags of surprises
    n_paths: int = 1000  # sampled futures behind forecasts
    save_every: int = 500  # lines between two saves of the particle states; those since the last are in the journal
    most_steps: int = 1000  # how far a series may jump ahead of its last row
    distrust: int | float | None = None  # level outside which a value is treated as missing, as in `Forecaster.update`

    def __post_init__(self) -> None:
        self._writer = Writer(self.folder)
        try:
            self.forecaster = Forecaster.load(self.folder)
            self.journal = self._writer.journal
            self.journal.open()
            self.distrusted_before = self.journal.distrust
            if self.distrust != self.distrusted_before:
                # A journal has one level for all of its rows: those of another level are saved first.
                self.journal.distrust = self.distrust
                self._writer.save(self.forecaster.fitted)
        except BaseException:
            self.close()
            raise
        self.n_errors = 0

    @property
    def n_taken(self) -> int:
        """Lines answered in the life of the stream."""
        return self.journal.seen.n_lines

    @property
    def last_answer(self) -> dict[str, Any] | None:
        """The answer to the last line, which a kill may have kept from being printed."""
        return self.journal.seen.last_answer

    def answers(self, lines: Iterable[bytes], *, skip: int = 0) -> Iterator[dict[str, Any]]:
        """The answer to each line, given once it is in the journal. Blank lines are counted, but not answered.

        The first lines, as many as `skip` says, were answered before.
        """
        start = self.n_taken - skip
        for number, line in enumerate(lines, start=1):
            if number > skip and line.strip():
                yield self.take(line, start + number)
        self.save()

    def take(self, line: bytes, number: int) -> dict[str, Any]:
        """Answer one line."""
        try:
            row = parse_row(line, self.forecaster.fitted, self.horizon, self.most_steps)
            cells, answer = row.cells, {"line": number, **self._answer(row)}
        except RowError as error:
            self.n_errors += 1
            cells, answer = None, {"line": number, "error": str(error)}
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

    def _answer(self, row: Row) -> dict[str, Any]:
        """How surprising a row was, and the next steps, or None where inputs that should be known ahead are not."""
        settings, fitted = self.forecaster.settings, self.forecaster.fitted
        try:
            ahead = None if row.future is None else future_series(row, settings, self.horizon)
            if ahead is not None:  # a row whose future cannot be used is an error as a whole
                fitted.panel.known(ahead)
            surprise = self.forecaster.update(row.table(settings), self.levels, distrust=self.distrust)
        except (TableError, TimeOutOfReachError) as error:
            raise RowError(" ".join(str(error).split())) from None
        forecast = None
        if ahead is not None:
            drawn = fitted.forecast(fitted.following, {row.name: ahead}, self.n_paths)
            forecast = records(drawn.table(self.levels).drop(columns=[settings.id_column]))
        return {
            settings.id_column: row.name,
            settings.time_column: plain(row.time),
            "surprise": records(surprise.drop(columns=[settings.id_column, settings.time_column])),
            "forecast": forecast,
        }
