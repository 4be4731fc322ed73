"""Will the reservoir overflow this fortnight? Probabilities of events along whole paths, in words and as a function.

python examples/event_probability.py [steps of training]
"""

import sys

import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100

# Two reservoirs: the level moves slowly, with rain now and then.
random = np.random.default_rng(0)
days = pd.date_range("2024-01-01", periods=400, freq="D")
tables = []
for name, wet in [("north", 0.15), ("south", 0.3)]:
    level = np.empty(400)
    level[0] = 80.0
    for day in range(1, 400):
        rain = random.exponential(6) if random.random() < wet else 0.0
        level[day] = 80 + 0.95 * (level[day - 1] - 80) + rain - 6 * wet + random.normal(0, 0.5)
    tables.append(pd.DataFrame({"unique_id": name, "ds": days, "level": level}))

forecaster = Forecaster(horizon=14, training={"likelihood_steps": steps, "forecast_steps": steps})
forecaster.fit(pd.concat(tables))
forecast = forecaster.forecast(n_paths=4000)

for event in (
    "level > 95 at any step",
    "level > 78 at every step",
    "mean(level) < 80",
    "max(level) > 90 and level < 85 at step 14",
):
    print(f"\n{event}")
    print(forecast.probability(event).to_string(index=False, float_format="%.3f"))

# A function gets all paths of a series at once: a row for each path, and columns (target, step).
print("\nthree days in a row above 88")
above = forecast.probability(lambda paths: (paths["level"] > 88).astype(int).T.rolling(3).sum().T.ge(3).any(axis=1))
print(above.to_string(index=False, float_format="%.3f"))
