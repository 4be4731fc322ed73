"""What if demand is 20 % higher in ten days? Some future values are given, the others drawn given these (scenario.png).

python examples/scenario.py [steps of training]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150

# Price follows demand: both wander, and a high demand of today shows in the price of tomorrow.
random = np.random.default_rng(0)
days = pd.date_range("2024-01-01", periods=500, freq="D")
demand, price = np.empty(500), np.empty(500)
demand[0], price[0] = 100.0, 30.0
for day in range(1, 500):
    demand[day] = 100 + 0.95 * (demand[day - 1] - 100) + random.normal(0, 3)
    price[day] = 30 + 0.6 * (price[day - 1] - 30) + 0.2 * (demand[day - 1] - 100) + random.normal(0, 0.5)
table = pd.DataFrame({"unique_id": "grid", "ds": days, "price": price, "demand": demand})

forecaster = Forecaster(
    horizon=14,
    targets=["price", "demand"],  # two columns hold numbers: which are forecast has to be said
    training={"likelihood_steps": steps, "forecast_steps": steps},
).fit(table)

usual = forecaster.forecast()
tenth = usual.mean["demand"][9]
given = pd.DataFrame({"unique_id": ["grid"], "ds": usual.times[0][[9]], "demand": [1.2 * tenth]})
scenario = forecaster.scenario(given)

both = pd.DataFrame(
    {
        "ds": usual.times[0],
        "demand": usual.mean["demand"],
        "demand given": scenario.mean["demand"],
        "price": usual.mean["price"],
        "price given": scenario.mean["price"],
    }
)
print(both.to_string(index=False, float_format="%.1f"))
print(f"the paths are worth {scenario.effective_paths['grid']:.0f} independent ones")
high = "price > 33 at any step"
print(
    f"{high}: {usual.probability(high)['probability'][0]:.2f}, "
    f"in the scenario {scenario.probability(high)['probability'][0]:.2f}"
)

figure, axes = plt.subplots(2, 2, figsize=(11, 6), layout="constrained", sharex=True, sharey="row")
for column, forecast in enumerate((usual, scenario)):
    for row, target in enumerate(forecast.targets):
        forecast.plot(axes[row, column], target=target, history=table.tail(40), level=[95, 80])
figure.savefig("scenario.png")
print("scenario.png shows the forecast beside the scenario")
