"""Series of unequal length in one model, with gaps; and a new one that begins after the fit.

    python examples/unequal_panel.py [steps of training]

Short series profit from a model that was trained on long ones; a series with few rows has wide intervals.
"""

import sys

import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60


def temperatures(name, n_rows, level, seed):
    """Hourly temperatures of a room, the last of them at the same time in all rooms."""
    random = np.random.default_rng(seed)
    times = pd.date_range(end="2024-03-31 23:00", periods=n_rows, freq="h")
    noise = np.convolve(random.normal(0, 0.3, n_rows + 20), 0.8 ** np.arange(20), mode="valid")[:n_rows]
    return pd.DataFrame(
        {
            "unique_id": name,
            "ds": times,
            "y": level + 3 * np.sin(2 * np.pi * (times.hour - 9) / 24) + noise,
        }
    )


rooms = pd.concat(
    [
        temperatures("office", 600, 21, seed=1),
        temperatures("cellar", 120, 14, seed=2),
        temperatures("attic", 20, 26, seed=3),  # shorter than a training window
    ]
)
rooms = rooms[~((rooms["unique_id"] == "office") & rooms["ds"].between("2024-03-20", "2024-03-22"))]  # rows are absent
rooms.loc[(rooms["unique_id"] == "cellar") & (rooms["ds"].dt.hour == 3), "y"] = np.nan  # values are missing

forecaster = Forecaster(horizon=12, training={"likelihood_steps": steps, "forecast_steps": steps})
forecaster.fit(rooms)
for name, table in forecaster.predict(level=90).groupby("unique_id", sort=False):
    width = (table["y-hi-90"] - table["y-lo-90"]).mean()
    print(
        f"{name:8} {(rooms['unique_id'] == name).sum():4} rows: {table['y'].iloc[-1]:5.1f} degrees in 12 hours, "
        f"90 % intervals {width:.1f} wide on average"
    )

new = temperatures("kitchen", 30, 23, seed=4)
table = forecaster.predict(new, level=90)
print(f"a new room, from its 30 rows: {table['y'].iloc[-1]:.1f} degrees in 12 hours, no new training")
