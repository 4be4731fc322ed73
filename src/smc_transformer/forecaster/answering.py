"""Rows of JSON into answers: how surprising each was, and what comes next; or why it was refused.

Nothing is written down here: `live.py` keeps what was answered in a store, `stepping.py` in the bytes of a state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from smc_transformer.forecaster.facade import Forecaster
from smc_transformer.forecaster.folder.store.accepted import Accepted
from smc_transformer.forecaster.frequency import TimeOutOfReachError
from smc_transformer.forecaster.retiring import Retired
from smc_transformer.forecaster.rows import (
    PastRowError,
    Row,
    RowError,
    TakenError,
    TooManySeriesError,
    check_object,
    future_series,
    parse_object,
    read_row,
    row_series,
    rows_table,
)
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, TableError
from smc_transformer.support.as_json import plain, records
from smc_transformer.support.checks import shown

Answer: TypeAlias = dict[str, Any]
"""How surprising a row was, and what comes next."""
Find: TypeAlias = Callable[[Name, Any], Accepted | None]
"""The row of a series that was accepted at a time, if that is still known."""
NEW_SERIES = "new_series"
"""Key of answers to rows with which a series has begun: nothing has predicted them."""


class Taken(NamedTuple):
    """A row that was accepted, now or before."""

    answer: Answer
    is_new: bool


class Judged(NamedTuple):
    """What became of rows."""

    rounds: list[list[Accepted]]  # the new ones, those of each round took their filter step together
    found: list[Taken | RowError]  # for each row that was given


@dataclass(frozen=True, kw_only=True)
class Answering:
    """How rows are answered."""

    horizon: int = 1  # steps ahead of the forecasts in answers; 0: none
    levels: Sequence[int | float] = (80, 95)  # percentages of their intervals, and of the flags of surprises
    n_paths: int = 1000  # sampled futures behind forecasts
    most_steps: int = 1000  # how far a series may jump ahead of its last row
    distrust: int | float | None = None  # level outside which a value is treated as missing, as in `Forecaster.update`

    def judge(
        self,
        forecaster: Forecaster,
        given: Sequence[Any],
        find: Find,
        retired: Retired | None = None,
        beginners: int | None = None,
    ) -> Judged:
        """Update the forecaster with objects of JSON (or lines that hold them), in order.

        The k-th new row of each series is in the k-th round. A row that is refused does not touch the others. Series
        that are `retired` are fetched first. So many series that are not known may begin; None: rows of these are
        refused as unknown.
        """
        away = () if retired is None else retired.away
        fitted = forecaster.fitted
        answers: dict[int, Taken | RowError] = {}
        rounds: list[list[Accepted]] = []
        waiting: list[tuple[int, dict[str, Any], Name]] = []
        for place, one in enumerate(given):
            try:
                cells = parse_object(one) if isinstance(one, bytes) else check_object(one)
                waiting.append((place, cells, row_series(cells, fitted, away, may_begin=beginners is not None)))
            except RowError as error:
                answers[place] = error
        if retired is not None and (asleep := {name for _, _, name in waiting if name in away}):
            retired.fetch(asleep)
        just_now: dict[tuple[Name, Any], Accepted] = {}
        while waiting:
            now: dict[Name, tuple[int, Row]] = {}
            new: set[Name] = set()
            later = []
            for place, cells, name in waiting:
                if name in now:
                    later.append((place, cells, name))
                    continue
                is_new = name not in fitted.following.series
                try:
                    if is_new and len(new) >= (beginners or 0):
                        raise TooManySeriesError(
                            f"series {shown(name)} is new, and as many series have begun as may here (new_series)",
                            fitted.settings.id_column,
                        )
                    now[name] = place, read_row(cells, name, fitted, self.horizon, self.most_steps)
                    new |= {name} if is_new else set()
                except PastRowError as error:
                    row = error.row
                    before = just_now.get((row.name, row.time)) or find(row.name, row.time)
                    answers[place] = error if before is None else _as_before(row, before, forecaster.settings)
                except RowError as error:
                    answers[place] = error
            for accepted, refused in self._step(forecaster, [row for _, row in now.values()]):
                for one in accepted:
                    if one.name in new:
                        one.answer[NEW_SERIES] = True
                        beginners = (beginners or 0) - 1
                if accepted:
                    rounds.append(accepted)
                just_now |= {(one.name, one.time): one for one in accepted}
                answers |= {now[one.name][0]: Taken(one.answer, is_new=True) for one in accepted}
                answers |= {now[name][0]: error for name, error in refused}
            waiting = later
        return Judged(rounds, [answers[place] for place in range(len(given))])

    def _step(
        self, forecaster: Forecaster, rows: list[Row]
    ) -> Iterator[tuple[list[Accepted], list[tuple[Name, RowError]]]]:
        """Take a filter step for each row: all at once or, where one of them cannot be taken, one by one."""
        if not rows:
            return
        try:
            answers = self._answer(forecaster, rows)
        except (TableError, TimeOutOfReachError) as error:
            if len(rows) == 1:
                reason = " ".join(str(error).split())
                yield [], [(rows[0].name, RowError(reason, _blamed(reason, forecaster.settings)))]
            else:
                for row in rows:
                    yield from self._step(forecaster, [row])
        else:
            pairs = zip(rows, answers, strict=True)
            yield [Accepted(row.name, row.time, row.cells, answer) for row, answer in pairs], []

    def _answer(self, forecaster: Forecaster, rows: Sequence[Row]) -> list[Answer]:
        """How surprising rows were, and the next steps, or None where inputs that should be known ahead are not."""
        settings, fitted = forecaster.settings, forecaster.fitted
        ahead = {}
        if self.horizon:
            ahead = {row.name: future_series(row, settings, self.horizon) for row in rows if row.future is not None}
        for series in ahead.values():  # a row whose future cannot be used is an error as a whole
            fitted.panel.known(series)
        surprise = forecaster.update(rows_table(rows, settings), self.levels, distrust=self.distrust)
        surprises: dict[Name, list[dict[str, Any]]] = {row.name: [] for row in rows}
        for one in records(surprise):
            del one[settings.time_column]
            surprises[_name(one.pop(settings.id_column))].append(one)
        forecasts: dict[Name, list[dict[str, Any]]] = {name: [] for name in ahead}
        if ahead:
            drawn = fitted.forecast(fitted.following, ahead, self.n_paths)
            for one in records(drawn.table(self.levels)):
                forecasts[_name(one.pop(settings.id_column))].append(one)
        return [
            {
                settings.id_column: row.name,
                settings.time_column: plain(row.time),
                "surprise": surprises[row.name],
                "forecast": forecasts.get(row.name),
            }
            for row in rows
        ]


def _as_before(row: Row, before: Accepted, settings: Settings) -> Taken | TakenError:
    """The answer that the same row got before; another row with its time is refused."""
    for column in (*settings.modelled, *settings.future_inputs):
        there, value = before.cells.get(column), row.cells[column]
        if there != value:
            reason = f"time {row.cells[settings.time_column]} is taken: {column!r} is {there} there, got {value}"
            return TakenError(f"series {shown(row.name)}: {reason}", column)
    return Taken(before.answer, is_new=False)


def _blamed(reason: str, settings: Settings) -> str | None:
    """The column that the reader of tables names."""
    columns = (settings.time_column, settings.id_column, *settings.modelled, *settings.future_inputs)
    return next((column for column in columns if f"column {column!r}" in reason), None)


def _name(told: Any) -> Name:
    """A name as JSON has it, which knows no tuples."""
    return tuple(told) if isinstance(told, list) else told
