"""Tables of engines that share work between machines: recognised by their type, without importing any engine."""

from functools import lru_cache
from importlib import import_module
from typing import Any

ENGINES = {"pyspark": "spark", "dask": "dask", "ray": "ray"}
"""The engine of a table by the package that its type comes from."""
HOME = "smc_transformer.engines"
"""Where they are: above this layer, and imported when a table asks for it."""


def engine_of(table: Any) -> str | None:
    """The engine that a table belongs to; None for pandas and all else that becomes a pandas table."""
    return _engine_of(type(table).__mro__)


def run_on_engine(forecaster: Any, verb: str, table: Any, arguments: dict[str, Any], errors: str) -> Any:
    """The answer of a method of a forecaster, on the engine of the table."""
    return import_module(HOME).run(forecaster, verb, table, arguments, errors=errors)


@lru_cache(64)
def _engine_of(kinds: tuple[type, ...]) -> str | None:
    packages = (one.__module__.partition(".")[0] for one in kinds)
    return next((ENGINES[top] for top in packages if top in ENGINES), None)
