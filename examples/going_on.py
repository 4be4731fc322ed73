"""Fit once, then update with new rows, save, load, and continue with identical results.

python examples/going_on.py [steps of training]
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60

random = np.random.default_rng(0)
times = pd.date_range("2024-01-01", periods=800, freq="15min")
load = pd.DataFrame(
    {
        "unique_id": "server",
        "ds": times,
        "y": 50 + 20 * np.sin(2 * np.pi * np.arange(800) / 96) + np.cumsum(random.normal(0, 0.5, 800)),
    }
)
known, new = load[:700], load[700:]

forecaster = Forecaster(horizon=8, training={"likelihood_steps": steps, "forecast_steps": steps})
started = time.perf_counter()
forecaster.fit(known)
print(f"fit on {len(known)} rows: {time.perf_counter() - started:.1f} seconds")

started = time.perf_counter()
surprise = forecaster.update(new[:50])
print(f"update with 50 rows: {time.perf_counter() - started:.2f} seconds, no new training")
print(f"of these, {surprise['outside-95'].mean():.0%} were outside the 95 % interval predicted before they came")

with tempfile.TemporaryDirectory() as folder:
    forecaster.save(Path(folder) / "model")
    print("saved:", ", ".join(sorted(path.name for path in (Path(folder) / "model").iterdir())))
    loaded = Forecaster.load(Path(folder) / "model")

for one in (forecaster, loaded):
    one.update(new[50:])
same = forecaster.predict().equals(loaded.predict())
print(f"both go on with 50 more rows: the forecasts are {'the same to the last bit' if same else 'DIFFERENT'}")
print(forecaster.predict(h=4, level=90).to_string(index=False, float_format="%.1f"))
