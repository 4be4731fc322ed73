"""What an engine runs: a pure function from the rows of some whole series to the answer for them, both pandas.

The model comes as bytes, and is kept by each process that has seen it: a worker reads it once, however many buckets it
is given. A bucket is worked on in parts of some hundred series, so that a worker's memory does not grow with it.
"""

import hashlib
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.collecting import collect
from smc_transformer.forecaster.fitted import Fitted, Following
from smc_transformer.forecaster.fleet import Fleet

if TYPE_CHECKING:
    from smc_transformer.forecaster.settings import Settings

ROWS_AT_ONCE = 200_000
"""Rows that are worked on together, at least one series: some 50 MB of tables."""
SERIES_AT_ONCE = 250
"""Series that are: particles and paths take their memory by the series, however short these are (docs/scale.md)."""
ERROR = "error"
"""The column of reasons."""
STATES = "states"
"""The column in which an update hands the states of its series back, as bytes."""

_kept: dict[bytes, Forecaster] = {}  # by the digest of the bytes; the last one that this process was sent


class Call(NamedTuple):
    """A method of a forecaster and its arguments, without the table."""

    verb: str
    arguments: dict[str, Any]
    collecting: bool = False


class Shipped(NamedTuple):
    """What goes to a worker."""

    model: bytes
    call: Call

    def __call__(self, table: pd.DataFrame) -> pd.DataFrame:
        """The answer for a bucket of whole series, in any order of rows."""
        return answer(self, table)


def ship(forecaster: Forecaster, call: Call) -> Shipped:
    """A forecaster as bytes: for an update with the states of all series, else without any."""
    fitted = forecaster.fitted
    if call.verb != "update":
        name = next(iter(fitted.trained_until))
        until = fitted.trained_until if call.verb == "backtest" else {name: fitted.trained_until[name]}
        fitted = replace(fitted, following=Following(Fleet(), {}), trained_until=until)
    return Shipped(pickle.dumps((forecaster._asked, fitted)), call)


def received(model: bytes, *, fresh: bool = False) -> Forecaster:
    """The forecaster that was shipped: the same object for all buckets of a process, unless a `fresh` one is needed."""
    digest = hashlib.sha256(model).digest()
    if fresh or digest not in _kept:
        asked, fitted = pickle.loads(model)
        found = _unpacked(asked, fitted)
        if fresh:
            return found
        _kept.clear()
        _kept[digest] = found
    return _kept[digest]


def _unpacked(asked: dict[str, Any], fitted: Fitted) -> Forecaster:
    forecaster = Forecaster(**asked)
    forecaster.settings, forecaster._fitted = fitted.settings, fitted
    return forecaster


def answer(shipped: Shipped, table: pd.DataFrame) -> pd.DataFrame:
    """The answer for a bucket."""
    forecaster = received(shipped.model, fresh=shipped.call.verb == "update")
    settings = forecaster.settings
    ordered = in_order(table, settings)
    found = [_answer(forecaster, shipped.call, part) for part in parts(ordered, settings.id_column)]
    return pd.concat(found, ignore_index=True)


def answers(shipped: Shipped, tables: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The answers for a stream of rows that is sorted by series: at no time more than some series are held."""
    settings = received(shipped.model).settings
    waiting: list[pd.DataFrame] = []
    n_waiting = 0
    for table in tables:
        if len(table) == 0:
            continue
        waiting.append(table)
        n_waiting += len(table)
        if n_waiting < ROWS_AT_ONCE:
            continue
        rows = pd.concat(waiting, ignore_index=True)
        # The last series may go on in the next table.
        is_last = rows[settings.id_column] == rows[settings.id_column].iloc[-1]
        if not is_last.all():
            yield answer(shipped, rows[~is_last])
            rows = rows[is_last]
        waiting, n_waiting = [rows], len(rows)
    if waiting:
        yield answer(shipped, pd.concat(waiting, ignore_index=True))


def shaped(found: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """An answer with the columns of another; without a value, times and whole numbers still have their types.

    A bucket of wrong series alone has reasons and nothing else; its times must not become floating point numbers.
    """
    found = found.reindex(columns=like.columns)
    for column, kind in like.dtypes.items():
        if not found[column].isna().any():
            continue
        if pd.api.types.is_datetime64_any_dtype(kind):
            found[column] = found[column].astype(kind)
        elif pd.api.types.is_integer_dtype(kind):
            found[column] = found[column].astype("Int64")
    return found


def in_order(table: pd.DataFrame, settings: "Settings") -> pd.DataFrame:
    """Rows by series and time: an engine's table has no order. Rows that cannot be ordered stay, to be told wrong."""
    columns = [settings.id_column, settings.time_column]
    if not set(columns) <= set(table.columns):
        return table
    return table.sort_values(columns, kind="stable", ignore_index=True)


def parts(table: pd.DataFrame, id_column: str) -> Iterator[pd.DataFrame]:
    """An ordered table in parts of whole series."""
    if id_column not in table.columns or len(table) == 0:
        yield table
        return
    codes = pd.factorize(table[id_column])[0]
    ends = [*(codes[1:] != codes[:-1]).nonzero()[0] + 1, len(table)]
    start, n_series = 0, 0
    for number, end in enumerate(ends):
        following = ends[number + 1] if number + 1 < len(ends) else None
        n_series += 1
        if following is None or following - start > ROWS_AT_ONCE or n_series == SERIES_AT_ONCE:
            yield table.iloc[start:end].reset_index(drop=True)
            start, n_series = end, 0


def _answer(forecaster: Forecaster, call: Call, table: pd.DataFrame) -> pd.DataFrame:
    if call.verb == "update":
        return _updated(forecaster, call, table)
    if call.collecting:
        return collect(lambda part: _run(forecaster, call, part), table, forecaster.settings).both
    return _run(forecaster, call, table)


def _run(forecaster: Forecaster, call: Call, table: pd.DataFrame) -> pd.DataFrame:
    if call.verb == "backtest":
        return forecaster.past_forecasts(table, **call.arguments)
    return getattr(forecaster, call.verb)(table, **call.arguments)


def _updated(forecaster: Forecaster, call: Call, table: pd.DataFrame) -> pd.DataFrame:
    """How surprising the rows were, and in a row of its own the states after them."""

    def run(part: pd.DataFrame) -> pd.DataFrame:
        return forecaster.update(part, **call.arguments)

    found = collect(run, table, forecaster.settings).both if call.collecting else run(table)
    followed = forecaster.fitted.following
    names = [name for name in dict.fromkeys(table[forecaster.settings.id_column]) if name in followed.series]
    groups = [[names[place] for place in places] for places in followed.fleet.groups(names)]
    blocks = [(group, followed.fleet.take(group)) for group in groups]
    packed = pickle.dumps((blocks, {name: followed.series[name] for name in names}))
    return pd.concat((found.assign(**{STATES: None}), pd.DataFrame({STATES: [packed]})), ignore_index=True)
