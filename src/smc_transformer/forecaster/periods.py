"""Times that are periods, such as months: counted by their first moments, and shown as periods again.

`freq="period[M]"`, as pandas writes the type, means that times are periods. Inside, a period is the timestamp at which
it begins, so that one kind of grid serves both.
"""

from typing import Any

import pandas as pd

_PREFIX, _SUFFIX = "period[", "]"
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


def period_frequency(freq: Any) -> str | None:
    """What stands inside period[...]; None for other frequencies."""
    is_period = isinstance(freq, str) and freq.startswith(_PREFIX) and freq.endswith(_SUFFIX)
    return freq[len(_PREFIX) : -len(_SUFFIX)] if is_period else None


def steps_of_starts(freq: str) -> str:
    """The frequency of the first moments of periods: "MS" for "period[M]"; other frequencies stay as they are."""
    inside = period_frequency(freq)
    if inside is None:
        return freq
    offset = pd.PeriodDtype(inside).freq
    kind, _, anchor = str(offset.rule_code).partition("-")  # W-SUN is the week that ends with a Sunday
    number = "" if offset.n == 1 else str(offset.n)
    if kind == "W":
        return f"{number}W-{_after(anchor, _DAYS)}"
    if kind in ("Q", "QE", "Y", "YE", "A"):
        return f"{number}{kind[0].replace('A', 'Y')}S-{_after(anchor, _MONTHS)}"
    return f"{number}MS" if kind in ("M", "ME") else str(offset.freqstr)


def frequency_of(dtype: Any) -> str | None:
    """The frequency of a column of periods, as the settings hold it; None for columns of another type."""
    return str(dtype) if isinstance(dtype, pd.PeriodDtype) else None


def as_shown(times: pd.Index, freq: Any) -> pd.Index:
    """Times as the user has them: periods, if the frequency says so."""
    inside = period_frequency(freq)
    return times if inside is None or not isinstance(times, pd.DatetimeIndex) else times.to_period(inside)


def on_axis(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The table with times that a chart can have: periods by their first moments."""
    periods = [column for column in columns if isinstance(table[column].dtype, pd.PeriodDtype)]
    return table.assign(**{column: table[column].dt.to_timestamp() for column in periods})


def _after(name: str, cycle: tuple[str, ...]) -> str:
    return cycle[(cycle.index(name) + 1) % len(cycle)]
