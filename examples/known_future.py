"""What is known ahead: the same week with and without a promotion (writes promotion.png).

    python examples/known_future.py [steps of training]

The promotion of day t is known when day t is forecast. A second forecast shows the same week without it.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100

random = np.random.default_rng(0)
days = pd.date_range("2024-01-01", periods=365, freq="D")
promotion = (random.random(365) < 0.2).astype(float)
sales = pd.DataFrame(
    {
        "unique_id": "shop",
        "ds": days,
        "y": 100 + 15 * np.sin(2 * np.pi * days.day_of_week / 7) + 40 * promotion + random.normal(0, 5, 365),
        "promotion": promotion,
    }
)

forecaster = Forecaster(
    horizon=7, future_inputs=["promotion"], training={"likelihood_steps": steps, "forecast_steps": steps}
)
forecaster.fit(sales)

week = pd.date_range(days[-1], periods=8, freq="D")[1:]
plans = {"without a promotion": [0] * 7, "promotion on the last three days": [0, 0, 0, 0, 1, 1, 1]}
figure, axes = plt.subplots(1, 2, figsize=(11, 3.5), sharey=True, layout="constrained")
for panel, (name, plan) in zip(axes, plans.items(), strict=True):
    forecast = forecaster.forecast(future=pd.DataFrame({"unique_id": "shop", "ds": week, "promotion": plan}))
    total = forecast.paths[0, :, :, 0].sum(axis=1)  # paths are joint, so that their sums can be taken
    low, high = np.quantile(total, [0.1, 0.9])
    print(f"{name:34} {total.mean():5.0f} sold in the week, 80 % between {low:.0f} and {high:.0f}")
    forecast.plot(panel, history=sales.tail(28))
    panel.set_title(name)
    panel.tick_params(axis="x", labelrotation=20)
figure.savefig("promotion.png")
print("by construction a day of promotion sells 40 more: the difference should be about 120")
