"""The value one season ago, at every level: a point forecast, which is what the published numbers score.

WQL of a point forecast is Σ |y - f| / Σ |y|. Where that value is missing, the last one before it that is not.
"""

import numpy as np

from benchmarks.panels.forecast import QuantileForecast
from benchmarks.panels.metrics import LEVELS
from benchmarks.panels.panels import Split
from benchmarks.panels.stopwatch import Stopwatch


def run(split: Split, seed: int, settings: dict, stopwatch: Stopwatch) -> QuantileForecast:
    season, horizon = split.panel.season, split.panel.horizon
    with stopwatch.part("fit"):
        filled = split.train.groupby("unique_id", sort=False)["y"].ffill()
    with stopwatch.part("predict"):
        steps = np.arange(horizon) % season
        series = filled.groupby(split.train["unique_id"], sort=False)
        points = np.stack([last_season(y.to_numpy(float), season)[steps] for _, y in series])
    return QuantileForecast(np.repeat(points[..., None], len(LEVELS), axis=-1))


def last_season(y: np.ndarray, season: int) -> np.ndarray:
    """The last `season` values; of a shorter series, its last value for the places it has not reached."""
    return y[-season:] if len(y) >= season else np.concatenate((np.full(season - len(y), y[-1]), y))
