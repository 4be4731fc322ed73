"""What series are called: text, whole numbers, or tuples of these, as in the levels of a hierarchy."""

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


def is_name(value: Any) -> bool:
    """Whether a series can be called that."""
    parts = value if isinstance(value, tuple) else (value,)
    return bool(parts) and all(isinstance(part, (str, int)) and not isinstance(part, bool) for part in parts)


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
    return table.assign(**{id_column: name_array([only] * len(table))}).infer_objects()


def as_one_series(table: pd.DataFrame, id_column: str) -> pd.DataFrame:
    """A table without a column of names is one series, unless a column was named that it does not have."""
    return with_names(table, id_column, (ONLY_SERIES,)) if id_column == ID_COLUMN else table


def rows_called(table: pd.DataFrame, id_column: str, name: Name) -> pd.DataFrame:
    """The rows of one series."""
    return table[[found == name for found in table[id_column]]]
