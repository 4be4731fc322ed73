"""Thirty monthly series, simulated: sales of goods that people buy in summer, in winter, or all year.

    log y_t = level_t + season(month of t) + noise_t
    level_t = level_{t-1} + slope_t + noise,   slope_t = 0.98 slope_{t-1} + noise

The season's shape is that of the kind of goods, its strength that of the series. Lengths are unequal, and values and
whole rows are missing in some series. Nothing here was measured by anybody.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float

N_OF_A_KIND = 10
LAST_MONTH = "2024-12-01"
SHORTEST, LONGEST = 36, 144
MONTHS = np.arange(12)
KINDS = {
    "summer": np.cos(2 * np.pi * (MONTHS - 6) / 12),  # highest in July
    "winter": 2.5 * np.exp(np.cos(2 * np.pi * (MONTHS - 11) / 12) * 4 - 4) - 0.5,  # a peak in December
    "steady": 0.2 * np.cos(4 * np.pi * MONTHS / 12),  # a little more in January and July
}
"""The season of each kind, from January to December, before its strength."""


def simulated_panel(seed: int = 0) -> pd.DataFrame:
    """A long table with unique_id, ds and y; absent rows and NaN are missing values."""
    random = np.random.default_rng(seed)
    tables = []
    for kind, season in KINDS.items():
        for number in range(1, N_OF_A_KIND + 1):
            n_rows = int(random.integers(SHORTEST, LONGEST + 1))
            times = pd.date_range(end=LAST_MONTH, periods=n_rows, freq="MS")
            strength = random.uniform(0.15, 0.45)
            level = np.log(random.uniform(30, 900)) + _level(n_rows, random)
            noise = random.normal(0, random.uniform(0.03, 0.08), n_rows)
            y = np.exp(level + strength * season[times.month.to_numpy() - 1] + noise).round(1)
            table = pd.DataFrame({"unique_id": f"{kind}-{number:02}", "ds": times, "y": y})
            tables.append(_with_gaps(table, number, random))
    return pd.concat(tables, ignore_index=True)


def _level(n_rows: int, random: np.random.Generator) -> Float[np.ndarray, "_"]:
    slope, level = random.normal(0.003, 0.004), np.zeros(n_rows)
    for t in range(1, n_rows):
        slope = 0.98 * slope + random.normal(0, 0.0008)
        level[t] = level[t - 1] + slope + random.normal(0, 0.008)
    return level


def _with_gaps(table: pd.DataFrame, number: int, random: np.random.Generator) -> pd.DataFrame:
    """Of ten series, three lack single values and two lack the rows of some months in a row."""
    if number % 3 == 0:
        table.loc[random.random(len(table)) < 0.05, "y"] = np.nan
    if number % 5 == 0:
        first = int(random.integers(6, len(table) - 20))
        table = table.drop(index=range(first, first + int(random.integers(3, 8))))
    return table
