"""Columns of times: timestamps, dates, or text; what cannot be read as a time is named with its row."""

from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from smc_transformer.support.checks import shown

CLOCKS = ("now", "today")
"""Words that pandas reads as the time at which it is asked."""


def parse_times(
    values: "pd.Series[Any]", name: str, time_format: str | None, error: type[ValueError], *, hint: str = ""
) -> "pd.Series[Any]":
    """A column as timestamps, of which none is missing but those that were; an `error` names the first wrong row.

    Rows are counted from 0. Text is read as `time_format` says; None: ISO 8601, and an error ends with the hint.
    """
    form = "ISO8601" if time_format is None else time_format
    wrong = ~np.fromiter((_may_be_time(value) for value in values), dtype=bool, count=len(values))
    try:
        found = pd.to_datetime(values.mask(wrong), format=form)
        wrong |= (found.isna() & values.notna()).to_numpy()  # such as "NaT"
    except (ValueError, TypeError, OverflowError) as cause:
        if "timezone" in str(cause).lower() or "tz-aware" in str(cause).lower():
            raise error(f"column {name!r} mixes time zones: write all times in one, such as UTC") from None
        each = pd.to_datetime(values.mask(wrong), format=form, errors="coerce")
        wrong |= (each.isna() & values.notna()).to_numpy()
        if not wrong.any():
            raise error(f"column {name!r} must hold timestamps, it cannot be read as such") from None
    if wrong.any():
        row = int(wrong.argmax())
        expected = f"ISO 8601 (2024-01-31 13:00){hint}" if time_format is None else time_format
        raise error(f"column {name!r}, row {row}: {shown(values.iloc[row])} is not a time as {expected}")
    return found


def _may_be_time(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in CLOCKS
    return isinstance(value, (date, np.datetime64)) or (not isinstance(value, (list, dict)) and bool(pd.isna(value)))
