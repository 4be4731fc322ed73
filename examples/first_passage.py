"""When will the battery be empty? The distribution of the first hour at which a value reaches a level.

python examples/first_passage.py [steps of training]
"""

import sys

import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100

# Batteries that lose charge at a rate that wanders, and are charged when they are nearly empty.
random = np.random.default_rng(0)
hours = pd.date_range("2024-01-01", periods=600, freq="h")
tables = []
for name in ("drone", "rover", "beacon"):
    charge, rate, values = 100.0, 2.0, []
    for _ in hours:
        rate = max(0.5, 2 + 0.9 * (rate - 2) + random.normal(0, 0.3))
        charge = 100.0 if charge < 20 else charge - rate + random.normal(0, 0.3)
        values.append(charge)
    tables.append(pd.DataFrame({"unique_id": name, "ds": hours, "charge": values}))

forecaster = Forecaster(horizon=24, training={"likelihood_steps": steps, "forecast_steps": steps})
forecaster.fit(pd.concat(tables))
passage = forecaster.forecast(n_paths=4000).first_passage(30, above=False)

for name, own in passage.groupby("unique_id", sort=False):
    print(f"\n{name}: below 30 % within a day with probability {1 - own['never'].iloc[0]:.2f}")
    print(own[own["probability"] > 0.03].to_string(index=False, float_format="%.3f"))
    late = own[own["cumulative"] >= 0.1]
    if len(late):
        print(f"charge it before {late['ds'].iloc[0]}: one time in ten it is empty by then")
