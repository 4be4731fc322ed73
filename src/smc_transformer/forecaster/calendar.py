"""Calendar features: where in the day, the week or the year a time is, as points on a circle."""

from collections.abc import Callable

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


def calendar_features(times: pd.Index, names: tuple[str, ...]) -> Float[np.ndarray, "row feature"]:
    """Sine and cosine of each cycle, of unit variance over it: the last hour of a day is next to the first."""
    columns = [np.empty((len(times), 0))]
    for name in names:
        angle = 2 * np.pi * _SHARES[name](times)
        columns.append(np.sqrt(2) * np.stack((np.sin(angle), np.cos(angle)), axis=1))
    return np.concatenate(columns, axis=1)
