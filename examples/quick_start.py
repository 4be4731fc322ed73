"""Daily sales of three shops: two lines to a forecast of two weeks, and a picture of it (writes forecast.png).

python examples/quick_start.py
"""

import numpy as np
import pandas as pd

from smc_transformer import Forecaster

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

forecaster = Forecaster(horizon=14).fit(sales)
table = forecaster.predict(level=[80, 95])

print(table.head(7).to_string(index=False, float_format="%.1f"))
print("\nchosen from the table, as nothing else was said:")
for setting, words in forecaster.report.chosen.items():
    print(f"  {setting}: {words}")

axes = forecaster.forecast().plot(series="market", history=sales.groupby("unique_id").tail(60))
axes.figure.savefig("forecast.png")
print("\nforecast.png shows the shop at the market")
