"""A pump's pressure, live: faults are found as the readings arrive (writes anomalies.png).

    python examples/live_anomalies.py [steps of training]

The model is trained on a quiet week. Then come 300 readings, one by one, a dozen of them wrong: most are within the
daily range, so that a fixed threshold cannot find them. A reading outside the 99.8 % interval that was predicted for it
raises an alarm and is treated as missing, so that the return to normal does not raise a second alarm. Of 1000 good
readings 2 are expected to raise a false alarm.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from smc_transformer import Forecaster

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
LEVEL = 99.8


def pressure(n_rows, random):
    """A daily cycle plus autocorrelated noise; in bar."""
    noise = np.convolve(random.normal(0, 0.05, n_rows + 30), 0.7 ** np.arange(30), mode="valid")[:n_rows]
    return 5 + np.sin(2 * np.pi * np.arange(n_rows) / 48) + noise


random = np.random.default_rng(0)
times = pd.date_range("2024-01-01", periods=636, freq="30min")
readings = pd.DataFrame({"unique_id": "pump", "ds": times, "y": pressure(636, random)})
quiet, live = readings[:336], readings[336:].reset_index(drop=True)
faults = np.sort(random.choice(np.arange(10, 300, 8), 12, replace=False))
sizes = np.where(np.arange(12) % 3 == 0, 3.0, 0.6) * random.choice([-1, 1], 12)
live.loc[faults, "y"] += sizes  # within the daily range, most of them

forecaster = Forecaster(horizon=4, training={"likelihood_steps": steps, "forecast_steps": steps})
forecaster.fit(quiet)

alarms = []
for number in range(len(live)):
    surprise = forecaster.update(live[number : number + 1], level=LEVEL, distrust=LEVEL).iloc[0]
    if surprise["distrusted"]:
        alarms.append(number)
        truth = "a fault" if number in faults else "FALSE ALARM"
        where = f"P(lower) = {surprise['pit']:.4f}, log density {surprise['log_density']:6.1f}"
        print(f"{surprise['ds']:%d %b %H:%M}  {surprise['value']:5.2f} bar, {where}  {truth}")

caught = len(set(alarms) & set(faults.tolist()))
print(f"{caught} of {len(faults)} faults caught; {len(alarms) - caught} false alarms in {len(live) - len(faults)} rows")

figure, axes = plt.subplots(figsize=(10, 3.5), layout="constrained")
axes.plot(live["ds"], live["y"], color="black", linewidth=0.8, label="pressure")
axes.plot(live["ds"][faults], live["y"][faults], "o", mfc="none", color="tab:blue", markersize=11, label="fault")
axes.plot(live["ds"][alarms], live["y"][alarms], "o", color="tab:red", markersize=4, label="alarm")
axes.legend(ncols=3)
figure.savefig("anomalies.png")
