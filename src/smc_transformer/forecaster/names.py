"""What series are called: text, whole numbers, or tuples of these, as in the levels of a hierarchy."""

import unicodedata
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Shaped

Name: TypeAlias = str | int | tuple[str | int, ...]
"""What a series is called."""
ID_COLUMN = "unique_id"
"""The column of names, if no other is given."""
ONLY_SERIES = "series"
"""The name of the series in a table without a column of names."""
LONGEST, LARGEST = 200, 2**63
"""Characters of a name that a row brings, and what a whole number must stay below."""
UNSEEN = ("Cc", "Cs", "Zl", "Zp")
"""Kinds of characters that such a name must not have: controls, halves of characters, ends of lines and paragraphs."""


def is_name(value: Any) -> bool:
    """Whether a series can be called that."""
    parts = value if isinstance(value, tuple) else (value,)
    return bool(parts) and all(isinstance(part, (str, int)) and not isinstance(part, bool) for part in parts)


def new_name(value: Any, like: Name | None) -> Name:
    """What a series is called that begins with a row from outside, of the same kind as names that are there already.

    A name is shown on pages, in logs and in tables, and stays for ever.
    """
    if isinstance(value, tuple) or isinstance(like, tuple):
        kinds = like if isinstance(like, tuple) else value if like is None else ()
        parts = value if isinstance(value, tuple) else ()
        if not parts or len(parts) != len(kinds):
            expected = f"a list of {len(kinds)}" if kinds else "text or a whole number"
            raise ValueError(f"names are {expected} here, such as {like!r}")
        return tuple(_new_part(*pair) for pair in zip(parts, kinds, strict=True))
    return _new_part(value, like)


def _new_part(value: str | int, like: str | int | None) -> str | int:
    if isinstance(like, int) and isinstance(value, str):
        if not (value.isascii() and value.isdecimal() and len(value) < len(str(LARGEST))):
            raise ValueError(f"names are whole numbers here, such as {like}")
        value = int(value)
    if isinstance(value, int):
        if abs(value) >= LARGEST:
            raise ValueError(f"a whole number must be below {LARGEST}")
        return value if isinstance(like, int) else str(value)
    if not 0 < len(value) <= LONGEST:
        raise ValueError(f"a name has 1 to {LONGEST} characters, got {len(value)}")
    if value != value.strip():
        raise ValueError("a name neither begins nor ends with a space")
    wrong = next((one for one in value if unicodedata.category(one) in UNSEEN), None)
    if wrong is not None:
        raise ValueError(f"a name has no control characters, got {wrong!r}")
    return value


def name_array(names: Sequence[Any]) -> Shaped[np.ndarray, "name"]:
    """Names as an array of objects, in which a tuple is one of them and not a row."""
    found = np.empty(len(names), dtype=object)
    found[:] = names
    return found


def with_names(table: pd.DataFrame, id_column: str, known: Collection[Name]) -> pd.DataFrame:
    """The table with a column of names: one without it holds the only series that is known, if there is but one."""
    if len(known) != 1 or id_column in table.columns:
        return table
    (only,) = known
    names = pd.Series(name_array([only] * len(table)), index=table.index)
    return table.assign(**{id_column: names.infer_objects()})


def as_one_series(table: pd.DataFrame, id_column: str) -> pd.DataFrame:
    """A table without a column of names is one series, unless a column was named that it does not have."""
    return with_names(table, id_column, (ONLY_SERIES,)) if id_column == ID_COLUMN else table


def rows_called(table: pd.DataFrame, id_column: str, name: Name) -> pd.DataFrame:
    """The rows of one series."""
    return table[[found == name for found in table[id_column]]]
