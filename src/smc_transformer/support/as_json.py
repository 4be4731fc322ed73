"""Values and tables as JSON can hold them."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def plain(value: Any) -> Any:
    """A value as JSON can hold it: times as ISO text, what is not a finite number as None."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "isoformat"):
        text = value.isoformat()
        return None if text == "NaT" else text
    return plain(value.item()) if hasattr(value, "item") else str(value)  # item: of a number of numpy; a period is text


def records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table."""
    names = [str(name) for name in table.columns]
    columns = [_plain_column(column) for _, column in table.items()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain_column(column: "pd.Series") -> list[Any]:
    """The values of a column; what its type says need not be looked at value by value."""
    values: list[Any] = column.tolist()
    if str(column.dtype) == "float64":
        return [value if math.isfinite(value) else None for value in values]
    return values if str(column.dtype) in ("bool", "int64") else [plain(value) for value in values]
