"""The reason why a worker failed, found in the traces of many processes that its engine shows."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

ENGINES = ("pyspark", "py4j", "dask", "distributed", "ray")
_RAISED = re.compile(r"^\W*((?:\w+\.)*\w*(?:Error|Exception)): (.+)$", re.MULTILINE)  # the last line of a trace


class EngineError(ValueError):
    """What cannot be done on an engine, and what can be done instead."""


@contextmanager
def told_in_a_line() -> Iterator[None]:
    """Errors of an engine become an `EngineError` with the reason of the worker; those of this package stay."""
    try:
        yield
    except Exception as error:
        if not any(kind.__module__.partition(".")[0] in ENGINES for kind in type(error).__mro__):
            raise
        raise EngineError(reason(str(error))) from error


def reason(text: str) -> str:
    """The last error of this package that a text has, else the last of any, else its first line."""
    raised = _RAISED.findall(text)
    own = [said for kind, said in raised if kind.startswith("smc_transformer.")]
    if own or raised:
        return (own or [said for _, said in raised])[-1].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "the engine gave no reason")
