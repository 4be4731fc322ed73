"""A filter step as a pure function, for engines that keep the state themselves (Bytewax, Spark, Flink, ...).

    step = Stepper("model").step
    state, answers = step(state, rows)

The same state and rows give the same bytes, on any machine, whatever else has been computed before.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from smc_transformer.forecaster.answering import Answer, Answering
from smc_transformer.forecaster.facade import Forecaster
from smc_transformer.forecaster.fitted import Following
from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.folder import files
from smc_transformer.forecaster.folder.packed import pack_series, unpack_series
from smc_transformer.forecaster.folder.recorded import read_cells
from smc_transformer.forecaster.folder.store.accepted import Accepted, time_text
from smc_transformer.forecaster.rows import RowError, UnknownSeriesError, check_object, parse_object, row_series
from smc_transformer.forecaster.table import Name
from smc_transformer.support.checks import check_choice, shown


class Stepper:
    """A model whose series are kept by somebody else, one state for each series.

    Args:
        folder: a saved forecaster. It is read once, and never written to.
        states: "exact", or "small": at most about 64 kB each, of fewer particles (docs/live.md).
        answering: settings of `Answering`: how rows are answered.
    """

    def __init__(self, folder: str | Path, *, states: str = files.EXACT, **answering: Any) -> None:
        check_choice(states, (files.EXACT, files.SMALL), "states")
        self._states = states
        self._answering = Answering(**answering)
        self._fitted = Forecaster.load(folder).fitted
        self._fit = files.fit_number(self._fitted)

    @property
    def id_column(self) -> str:
        """Column of rows that names their series."""
        return self._fitted.settings.id_column

    @property
    def time_column(self) -> str:
        """Column of rows that has their time."""
        return self._fitted.settings.time_column

    @property
    def series(self) -> list[Name]:
        """The series of the folder."""
        return list(self._fitted.following.series)

    def begin(self, name: Name) -> bytes:
        """The state of a series as the folder has it.

        Raises:
            UnknownSeriesError: it has none of this name.
        """
        found = row_series({self._fitted.settings.id_column: name}, self._fitted)
        return pack_series(self._fitted, self._fit, found, states=self._states, last=None)

    @overload
    def step(self, state: bytes, rows: Sequence[Any]) -> tuple[bytes, list[Answer]]: ...

    @overload
    def step(self, state: bytes | None, rows: Sequence[Any]) -> tuple[bytes | None, list[Answer]]: ...

    def step(self, state: bytes | None, rows: Sequence[Any]) -> tuple[bytes | None, list[Answer]]:
        """The state after rows of its series, and the answer to each row, in order.

        None is the state of a series of which nothing is known here: the one that the first row names. It is as the
        folder has it or, if it is new, begins with these rows; the state stays None until one of them is taken.

        Rows are objects of JSON as in `smct stream`, and so are the answers: a row that cannot be taken is answered by
        {"error": {"kind": ..., "reason": ..., "column": ...}} and does not change the state. The last row, sent again,
        is answered as before.

        Raises:
            SavedForecasterError: these bytes are no state of this model.
        """
        if state is None:
            return self._begin_with(rows)
        _, following, more = unpack_series(state, self._fitted, self._fit)
        return self._step(state, following, more, rows)

    def _step(
        self, state: bytes | None, following: Following, more: dict[str, Any], rows: Sequence[Any]
    ) -> tuple[bytes | None, list[Answer]]:
        fitted = replace(self._fitted, following=following)
        forecaster = Forecaster.of(fitted)
        last = None if more.get("last") is None else read_cells(more["last"])

        def find(series: Name, time: Any) -> Accepted | None:
            if last is None or last["time"] != time_text(time):
                return None
            return Accepted(series, time, last["cells"], last["answer"])

        rounds, found = self._answering.judge(forecaster, rows, find, beginners=1 if state is None else None)
        answers: list[Answer] = [_refusal(one) if isinstance(one, RowError) else one.answer for one in found]
        if not rounds:
            return state, answers
        newest = rounds[-1][0]
        kept = {"time": time_text(newest.time), "cells": newest.cells, "answer": newest.answer}
        return pack_series(fitted, self._fit, newest.name, states=self._states, last=kept), answers

    def _begin_with(self, rows: Sequence[Any]) -> tuple[bytes | None, list[Answer]]:
        """The same for the series that rows name, of which there is no state yet."""
        names = [self._name(row) for row in rows]
        name = next((one for one in names if not isinstance(one, RowError)), None)
        if name is not None and name in self._fitted.following.series:
            return self.step(self.begin(name), rows)
        own = [row for row, one in zip(rows, names, strict=True) if one == name]
        state, answers = self._step(None, Following(Fleet(), {}), {}, own)
        of_own = iter(answers)
        return state, [next(of_own) if one == name else _refusal(self._other(one)) for one in names]

    def _name(self, row: Any) -> Name | RowError:
        try:
            cells = parse_object(row) if isinstance(row, bytes) else check_object(row)
            return row_series(cells, self._fitted, may_begin=True)
        except RowError as error:
            return error

    def _other(self, found: Name | RowError) -> RowError:
        """Why a row is refused that is not of the series."""
        if isinstance(found, RowError):
            return found
        return UnknownSeriesError(f"series {shown(found)} is another than that of the first row", self.id_column)


def _refusal(error: RowError) -> Answer:
    return {"error": {"kind": error.kind, "reason": str(error), "column": error.column}}
