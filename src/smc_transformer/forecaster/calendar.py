"""Calendar features: where in the day, the week or the year a time is, as points on a circle."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

_SHARES: dict[str, Callable[[pd.DatetimeIndex], Float[np.ndarray, "row"]]] = {
    "hour": lambda times: (times.hour + times.minute / 60).to_numpy(float) / 24,
    "weekday": lambda times: times.day_of_week.to_numpy(float) / 7,
    "month": lambda times: (times.month - 1).to_numpy(float) / 12,
    "day_of_year": lambda times: (times.day_of_year - 1).to_numpy(float) / 365.25,
}
"""The share of its cycle that has passed at each time."""

_SHARES_OF_ONE: dict[str, Callable[[pd.Timestamp], float]] = {
    "hour": lambda time: (time.hour + time.minute / 60) / 24,
    "weekday": lambda time: time.day_of_week / 7,
    "month": lambda time: (time.month - 1) / 12,
    "day_of_year": lambda time: (time.day_of_year - 1) / 365.25,
}
"""The same of a single time: an index takes longer than a few of these."""


def calendar_features(times: pd.Index | Sequence[Any], names: tuple[str, ...]) -> Float[np.ndarray, "row _"]:
    """Sine and cosine of each cycle, of unit variance over it: the last hour of a day is next to the first.

    Times are an index, or a few of them.
    """
    if not isinstance(times, pd.Index) and len(times) == 1:
        angles = 2 * np.pi * np.array([_SHARES_OF_ONE[name](times[0]) for name in names])
        return (np.sqrt(2) * np.array((np.sin(angles), np.cos(angles)))).T.reshape(1, -1)
    columns = [np.empty((len(times), 0))]
    for name in names:
        if isinstance(times, pd.Index):
            share = _SHARES[name](times)
        else:
            share = np.array([_SHARES_OF_ONE[name](time) for time in times])
        angle = 2 * np.pi * share
        columns.append(np.sqrt(2) * np.stack((np.sin(angle), np.cos(angle)), axis=1))
    return np.concatenate(columns, axis=1)
