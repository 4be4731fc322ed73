"""What a method returns, and its scores."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from benchmarks.panels.metrics import LEVELS, coverage, mase, seasonal_errors, wql
from benchmarks.panels.panels import Split


@dataclass(frozen=True)
class QuantileForecast:
    """Quantiles (series, step, level) at `LEVELS`, and central intervals by their percentage, if the method has any.

    `expected` is what the method itself thinks that the intervals cover. For whole numbers that is more than their
    percentage says: the ends are whole numbers too, and belong to the interval.
    """

    quantiles: np.ndarray
    intervals: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    expected: dict[int, float] = field(default_factory=dict)


def aligned(split: Split, table: pd.DataFrame, columns: list[str]) -> np.ndarray:
    """Columns of a forecast table (unique_id, ds, ...) in the order of the test rows: (series, step, column)."""
    rows = table.set_index(["unique_id", "ds"])[columns]
    wanted = pd.MultiIndex.from_frame(split.test[["unique_id", "ds"]])
    absent = wanted.difference(rows.index)
    if len(absent):
        raise ValueError(f"{split.panel.name}: {len(absent)} test rows have no forecast, such as {absent[0]}")
    return rows.reindex(wanted).to_numpy(float).reshape(-1, split.panel.horizon, len(columns))


def scores(split: Split, forecast: QuantileForecast) -> dict[str, float | None]:
    """WQL, MASE of the median, and coverage of the intervals (None where there are none)."""
    y = split.y
    median = forecast.quantiles[..., LEVELS.index(0.5)]
    covered = {
        f"coverage_{percent}": coverage(y, *forecast.intervals[percent]) if percent in forecast.intervals else None
        for percent in (80, 95)
    }
    expected = {f"expected_{percent}": share for percent, share in forecast.expected.items()}
    scale = seasonal_errors(split.train, split.panel.season)
    return {"wql": wql(y, forecast.quantiles), "mase": mase(y, median, scale), **covered, **expected}
