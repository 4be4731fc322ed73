"""Daily sales of three shops: fit, forecast two weeks, draw (writes forecast.png).

python examples/quick_start.py [steps of training]
"""

import sys

import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100

# A long table: one row for each series and time.
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

forecaster = Forecaster(
    input_size=28,
    horizon=14,
    freq="D",
    calendar=["weekday"],
    training={"likelihood_steps": steps, "forecast_steps": steps},
)
forecaster.fit(sales)
table = forecaster.predict(level=[80, 95])
print(table.head(7).to_string(index=False, float_format="%.1f"))

axes = forecaster.forecast().plot(series="market", history=sales.groupby("unique_id").tail(60))
axes.figure.savefig("forecast.png")
print("forecast.png shows the shop at the market")
