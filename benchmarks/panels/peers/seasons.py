"""What a user tells a tool that does not find it by itself: the season of a frequency, and values for gaps."""

import pandas as pd

SEASONS = {"h": 24, "D": 7, "B": 5, "MS": 12, "QS": 4}
"""Rows in a season, by the pandas frequency."""


def filled(train: pd.DataFrame) -> pd.DataFrame:
    """Gaps filled by the last value before them, at a beginning by the first after: neither tool takes NaN."""
    series = train.groupby("unique_id", sort=False)["y"]
    values = series.ffill()
    return train.assign(y=values.groupby(train["unique_id"], sort=False).bfill())
