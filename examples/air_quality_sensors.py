"""Air-quality sensors with their real gaps: UCI's file, in which -200 means that nothing was measured.

    python examples/air_quality_sensors.py [steps of training]     (writes air_quality.png)

Nothing is filled in: a gap is a step at which the particles draw what they have not seen, so that intervals widen in
it and close after it. The file is looked for in the folder that SMC_TRANSFORMER_DATA names and in the cache, and
downloaded from UCI if it is in neither.
"""

import sys

import pandas as pd

from smc_transformer import Forecaster
from smct_paper.datasets import DataFileNotFoundError
from smct_paper.datasets.air_quality import FILE, read_air_quality
from smct_paper.datasets.files import locate_file

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
SENSORS = ["PT08.S1(CO)", "PT08.S5(O3)"]

try:
    path = locate_file(FILE)
except DataFileNotFoundError as error:
    sys.exit(str(error))
data = read_air_quality(path)
table = pd.DataFrame(data.values, columns=list(data.columns))[SENSORS].assign(unique_id="street", ds=data.times)
table = table[-1500:]  # the last two months
print(f"{len(table)} hours, {table[SENSORS[0]].isna().sum()} of them without a value, up to {table['ds'].iloc[-1]}")

forecaster = Forecaster(horizon=12, targets=SENSORS, training={"likelihood_steps": steps, "forecast_steps": steps})
past, days = table[:-120], 10
forecaster.fit(past)

# Ten forecasts of half a day each, from cutoffs after the end of the training.
backtest = forecaster.backtest(table, n_windows=days, step_size=12, level=[80, 95], n_paths=300)
print(backtest.metrics.to_string(index=False, float_format="%.2f"))
print("picp is the share of values inside the 95 % intervals: it should be about 0.95")

forecast = forecaster.forecast()
axes = forecast.plot(history=table[-120 - 72 : -120 + 12], level=[95, 80])
axes.figure.savefig("air_quality.png")
print("air_quality.png shows the first of them, and the observed values")
