"""AutoETS of statsforecast: exponential smoothing, its form chosen for each series by AICc."""

import numpy as np
from statsforecast import StatsForecast
from statsforecast.models import AutoETS, SeasonalNaive

from benchmarks.panels.forecast import QuantileForecast, aligned
from benchmarks.panels.panels import Split
from benchmarks.panels.peers.seasons import SEASONS, filled
from benchmarks.panels.stopwatch import Stopwatch

ROWS = 1000
"""Of each series the last ones, which bounds the time."""
CENTRAL = (80, 60, 40, 20)
"""Percentages of central intervals, whose ends are the nine deciles but the median."""


def run(split: Split, seed: int, settings: dict, stopwatch: Stopwatch) -> QuantileForecast:
    season = SEASONS[split.panel.frequency]
    recent = filled(split.train).groupby("unique_id", sort=False).tail(ROWS)
    model = AutoETS(season_length=season, **settings)
    forecaster = StatsForecast([model], freq=split.panel.frequency, fallback_model=SeasonalNaive(season))
    with stopwatch.part("fit"):
        forecaster.fit(recent)
    with stopwatch.part("predict"):
        table = forecaster.predict(split.panel.horizon, level=[20, 40, 60, 80, 95])
    lower = [f"AutoETS-lo-{percent}" for percent in CENTRAL]
    upper = [f"AutoETS-hi-{percent}" for percent in reversed(CENTRAL)]
    quantiles = aligned(split, table, [*lower, "AutoETS", *upper])
    wide = aligned(split, table, ["AutoETS-lo-95", "AutoETS-hi-95"])
    if np.isnan(quantiles).any():
        raise ValueError(f"{split.panel.name}: AutoETS has no forecast for some series")
    return QuantileForecast(quantiles, {80: (quantiles[..., 0], quantiles[..., -1]), 95: (wide[..., 0], wide[..., 1])})
