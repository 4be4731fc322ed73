"""One-step intervals in the first rows of series that were not in the fit, and what a factor on their width would do.

A value's PIT is a normal score z, and |z| is too large where intervals are too narrow. For each range of rows seen
before, up to two seasons, k is the factor at which 95 % of the |z| of the series of the fit lie inside; the others are
judged with z / k, whose density is that of the value divided by k * phi(z) / phi(z / k). The last rows, on which the
panels are tested, are left out.

    SMC_TRANSFORMER_DATA=... python -m benchmarks.first_rows hospital tourism_monthly m3_quarterly car_parts
"""

import argparse

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks.panels.panels import PANELS, read_panel
from smc_transformer.forecaster import Forecaster

LEVELS = np.array([0.8, 0.95, 0.99])
SERIES = 150
"""In the fit, and as many others."""


def score(forecaster, rows):
    """Normal scores of all values, and how many rows of their series came before."""
    found = forecaster.score(rows)
    before = rows.assign(before=rows.groupby("unique_id").cumcount())
    found = found.merge(before[["unique_id", "ds", "before"]], on=["unique_id", "ds"])
    return found.assign(z=norm.ppf(found["pit"].clip(1e-7, 1 - 1e-7)))


def outside(z):
    return [(z.abs() > norm.ppf(0.5 + level / 2)).mean() for level in LEVELS]


def measure(name):
    panel = PANELS[name]
    table = read_panel(panel)
    table = table[table.groupby("unique_id").cumcount(ascending=False) >= panel.horizon]
    names = table["unique_id"].unique()[: 2 * SERIES]
    fitted, others = (table[table["unique_id"].isin(names[start::2])] for start in (0, 1))
    forecaster = Forecaster(horizon=panel.horizon).fit(fitted, progress=False)
    season = max(forecaster.settings.seasons, default=1)
    ends = sorted({1, 2, 4, 8, max(9, season + 1), 2 * season + 1, 4 * season + 1})
    own, new = score(forecaster, fitted), score(forecaster, others)
    for first, end in zip(ends, [*ends[1:], np.inf], strict=True):
        a, b = (one["z"][(one["before"] >= first) & (one["before"] < end)] for one in (own, new))
        if b.empty:
            continue
        k = max(1, np.quantile(a.abs(), 0.95) / norm.ppf(0.975)) if first <= 2 * season else 1
        gain = (norm.logpdf(b / k) - np.log(k) - norm.logpdf(b)).mean()
        yield {
            "panel": name,
            "rows before": f"{first} to {end - 1:.0f}" if end < np.inf else f"{first} on",
            "values": len(b),
            **{f"outside {level:.0%}": share for level, share in zip(LEVELS, outside(b), strict=True)},
            "k": k,
            **{f"{level:.0%} with k": share for level, share in zip(LEVELS, outside(b / k), strict=True)},
            "nats with k": gain,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("panels", nargs="+", choices=PANELS)
    for name in parser.parse_args().panels:
        print(pd.DataFrame(measure(name)).round(3).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
