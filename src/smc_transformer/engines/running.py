"""Methods of a forecaster on the tables of engines."""

import pickle
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pandas as pd

from smc_transformer.engines.bucket import ERROR, STATES, Call, Shipped, ship
from smc_transformer.engines.example import example_answer
from smc_transformer.engines.reasons import EngineError
from smc_transformer.forecaster.collecting import Collected, check_errors
from smc_transformer.forecaster.fitted import Followed, Following
from smc_transformer.forecaster.foreign import engine_of
from smc_transformer.forecaster.table import Name

if TYPE_CHECKING:
    from smc_transformer.forecaster import Forecaster

EXTRAS = {"spark": "pyspark", "dask": "dask", "ray": "ray"}
"""The package that each engine needs; the extra is called as the engine."""
VERBS = ("predict", "simulate", "score", "backtest", "update")


@runtime_checkable
class Engine(Protocol):
    """What each module of an engine has: tables of its kind in and out, nothing computed before it must be."""

    def map_series(self, table: Any, shipped: Shipped, id_column: str, like: pd.DataFrame) -> Any:
        """The answers for all series of a table; `like` is a pandas table with the columns of the answer."""

    def where(self, table: Any, column: str, *, missing: bool) -> Any:
        """The rows in which a column is missing, or those in which it is not."""

    def select(self, table: Any, columns: list[str]) -> Any:
        """Some columns."""

    def kept(self, table: Any) -> Any:
        """The table, computed once and held by the engine."""

    def to_pandas(self, table: Any) -> pd.DataFrame:
        """The table, computed."""

    def names_are_text(self, table: Any, id_column: str) -> bool:
        """Whether series have names of text; else whole numbers."""

    def columns(self, table: Any) -> list[str]:
        """The names of the columns."""

    def connected(self, address: str | None) -> AbstractContextManager[None]:
        """Read, compute and write on the cluster at an address, or on workers of this machine, which end afterwards."""

    def read(self, path: str) -> Any:
        """A folder of Parquet files as a table."""

    def write(self, table: Any, path: str) -> None:
        """Write a table as a folder of Parquet files."""


def load(name: str) -> Engine:
    """An engine by its name; an `ImportError` says which extra it needs."""
    if name not in EXTRAS:
        raise EngineError(f"there is no engine {name!r}; there are {', '.join(EXTRAS)}")
    try:
        import_module(EXTRAS[name])
    except ImportError as error:
        raise ImportError(
            f"the engine {name} needs {EXTRAS[name]}: pip install 'smc-transformer[{name}]' ({error})"
        ) from None
    return import_module(f"smc_transformer.engines.{name}_engine").ENGINE


def run(forecaster: "Forecaster", verb: str, table: Any, arguments: dict[str, Any], *, errors: str = "raise") -> Any:
    """The answer of a forecaster's method as a table of the engine that the table given belongs to.

    Lazy where the engine is, but for `update`, which changes the states of the forecaster: it is computed at once.
    """
    name = engine_of(table)
    if name is None or verb not in VERBS:
        raise EngineError(f"{verb} of a {type(table).__name__} does not run on an engine")
    engine, settings = load(name), forecaster.settings
    arguments = {key: value for key, value in arguments.items() if value is not None}
    _check(arguments)
    call = Call(verb, arguments, check_errors(errors))
    columns = engine.columns(table)
    needed = (settings.id_column, settings.time_column, *settings.modelled, *settings.future_inputs)
    if absent := [column for column in needed if column not in columns]:
        raise EngineError(f"the table has no column {absent[0]!r}; it has {columns}")
    own = engine.select(table, list(dict.fromkeys(needed)))
    like = example_answer(forecaster, call, text=engine.names_are_text(table, settings.id_column))
    found = engine.map_series(own, ship(forecaster, call), settings.id_column, like)
    if verb == "update":
        found = _take_states(forecaster, engine, found, like)
    return parted(engine, found, settings.id_column) if call.collecting else found


def _check(arguments: dict[str, Any]) -> None:
    if "series" in arguments:
        raise EngineError("on an engine choose series by filtering the table, not by series=")
    if engine_of(arguments.get("future")) is not None:
        raise EngineError("future inputs must be a pandas table: they are sent to every worker")


def parted(engine: Engine, both: Any, id_column: str) -> Collected:
    """Answers and reasons apart, of a table that has both."""
    columns = [column for column in engine.columns(both) if column not in (ERROR, STATES)]
    table = engine.select(engine.where(both, ERROR, missing=True), columns)
    return Collected(table, engine.select(engine.where(both, ERROR, missing=False), [id_column, ERROR]), both)


def _take_states(forecaster: "Forecaster", engine: Engine, found: Any, like: pd.DataFrame) -> Any:
    """Compute an update, and take over the states that it has led to; returns the rest of its answer."""
    found = engine.kept(found)
    packed = engine.to_pandas(engine.select(engine.where(found, STATES, missing=False), [STATES]))[STATES]
    fleet, known = forecaster.fitted.following
    blocks: list[Any] = []
    followed: dict[Name, Followed] = {}
    for one in packed:
        own_blocks, own = pickle.loads(bytes(one))
        blocks += own_blocks
        followed |= own
    forecaster.fitted.following = Following(fleet.replaced(blocks), {**known, **followed})
    rest = engine.where(found, STATES, missing=True)
    return engine.select(rest, [column for column in like.columns if column != STATES])
