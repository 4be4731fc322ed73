"""Some series by their names."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from smc_transformer.forecaster.table import Name
from smc_transformer.support.checks import shown

FEW = 10
"""Names in an error."""


def chosen_names(series: Name | Sequence[Name] | None, there_are: Collection[Name]) -> list[Name]:
    """The names asked for, each once and in the order in which they were; None: all there are."""
    if series is None:
        return list(there_are)
    # A tuple may be one name; or several, as a list is.
    one = not isinstance(series, Iterable) or isinstance(series, str)
    one = one or (isinstance(series, tuple) and series in there_are)
    names: list[Name] = [cast(Name, series)] if one else list(cast(Sequence[Name], series))
    if not names:
        raise ValueError("series must name at least one series, got none; leave it out for all of them")
    for name in names:
        if not _is_among(name, there_are):
            raise ValueError(f"there is no series {shown(name)}; {_others(name, there_are)}")
    return list(dict.fromkeys(names))


def _is_among(name: Any, there_are: Collection[Name]) -> bool:
    try:
        return name in there_are
    except TypeError:  # a list has no hash
        return False


def _others(name: Name, there_are: Collection[Name]) -> str:
    by_text = {str(known): known for known in there_are}  # 7 may be called "7"
    close = difflib.get_close_matches(str(name), list(by_text), n=3)
    if close:
        return f"close to it are {', '.join(repr(by_text[text]) for text in close)}"
    few = ", ".join(map(repr, list(there_are)[:FEW]))
    return f"there are {few}{', ...' if len(there_are) > FEW else ''}"
