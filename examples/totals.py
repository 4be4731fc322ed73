"""How much to order for two weeks, for each shop and for all of them? Sums over the horizon and over series.

python examples/totals.py [steps of training]
"""

import sys

import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100

random = np.random.default_rng(0)
days = pd.date_range("2024-01-01", periods=300, freq="D")
sales = pd.concat(
    pd.DataFrame(
        {
            "unique_id": shop,
            "ds": days,
            "y": size * (1 + 0.3 * (days.day_of_week >= 5) + np.cumsum(random.normal(0, 0.02, 300)))
            + random.normal(0, 2, 300),
        }
    )
    for shop, size in [("harbour", 40), ("market", 80), ("station", 120)]
)

forecaster = Forecaster(horizon=14, training={"likelihood_steps": steps, "forecast_steps": steps})
forecaster.fit(sales)
forecast = forecaster.forecast(n_paths=4000)

print("two weeks of each shop")
totals = forecast.total(level=[80])
print(totals.to_string(index=False, float_format="%.0f"))

print("\nall shops, day by day")
print(forecast.total_over_series(level=[80]).head(3).to_string(index=False, float_format="%.0f"))

print("\nall shops, two weeks")
whole = forecast.total_over_series(level=[80], whole_horizon=True)
print(whole.to_string(index=False, float_format="%.0f"))

# Shops are independent given the fit, so what one sells too little another may sell too much.
apart = (totals["y-hi-80"] - totals["y-lo-80"]).sum()
print(f"\nwidth of the interval: {(whole['y-hi-80'] - whole['y-lo-80'])[0]:.0f}, of the shops added up: {apart:.0f}")
