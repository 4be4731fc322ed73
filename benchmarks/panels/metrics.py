"""Scores of the public Chronos evaluation: WQL and MASE; and coverage.

Arrays are (series, step) and (series, step, level). Missing test values (NaN) are not scored; a missing forecast is an
error.
"""

import numpy as np
import pandas as pd

LEVELS = tuple(round(0.1 * number, 1) for number in range(1, 10))
"""Levels of the quantiles that WQL averages over."""


def wql(y: np.ndarray, quantiles: np.ndarray, levels: tuple[float, ...] = LEVELS) -> float:
    """Weighted quantile loss: for each level Σ 2 |(y - q) (1[y <= q] - level)| / Σ |y|, averaged over levels."""
    y, quantiles = _scored(y, quantiles)
    error = y[:, None] - quantiles
    loss = 2 * np.abs(error * ((error <= 0) - np.asarray(levels)))
    return float(loss.sum(axis=0).mean() / np.abs(y).sum())


def seasonal_errors(train: pd.DataFrame, season: int) -> np.ndarray:
    """Of each series (in the order of the table) the mean of |y_t - y_{t - season}| over its training rows.

    Pairs with a missing value do not count; NaN for a series without any pair.
    """
    before = train.groupby("unique_id", sort=False)["y"].shift(season)
    errors = (train["y"] - before).abs()
    return errors.groupby(train["unique_id"], sort=False).mean().to_numpy(float)


def mase(y: np.ndarray, median: np.ndarray, scale: np.ndarray) -> float:
    """Mean over all test values of |y - median| / scale.

    The scale of a series is its `seasonal_errors`. Series whose scale is zero or unknown have no MASE and are left out.
    """
    defined = scale > 0
    steps = y.shape[1]
    y, median, scale = _scored(y[defined], median[defined], np.repeat(scale[defined, None], steps, axis=1))
    return float(np.mean(np.abs(y - median) / scale))


def coverage(y: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """Share of test values in [lower, upper]."""
    y, lower, upper = _scored(y, lower, upper)
    return float(np.mean((lower <= y) & (y <= upper)))


def _scored(y: np.ndarray, *forecasts: np.ndarray) -> list[np.ndarray]:
    """What belongs to observed test values, each flattened to (value, ...)."""
    if any(forecast.shape[: y.ndim] != y.shape for forecast in forecasts):
        raise ValueError(f"forecasts of shapes {[each.shape for each in forecasts]} for test values of {y.shape}")
    observed = ~np.isnan(y)
    kept = [array[observed] for array in (y, *forecasts)]
    if any(np.isnan(array).any() for array in kept):
        raise ValueError("a forecast is missing where there is a test value")
    return kept
