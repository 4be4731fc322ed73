"""The forecaster on a panel with default settings: `python -m benchmarks.forecaster [--threads 2]`.

Fit of 100 series x 500 rows (at most 120 s on two idle cores), a forecast of all of them with 1000 paths (at most 5 s),
and an update by one row. Wall time is what users wait for; processor time is what can be compared on a busy machine.
"""

import argparse
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np
import pandas as pd
import torch

from smc_transformer.forecaster import Forecaster


def panel(n_series: int, n_rows: int, seed: int = 0) -> pd.DataFrame:
    """Daily cycles of different sizes and levels, with autocorrelated noise."""
    random = np.random.default_rng(seed)
    hours = np.arange(n_rows)
    tables = []
    for number in range(n_series):
        noise = random.normal(size=n_rows)
        for row in range(1, n_rows):
            noise[row] += 0.8 * noise[row - 1]
        cycle = random.uniform(0.5, 3) * np.sin(2 * np.pi * (hours + random.integers(24)) / 24)
        times = pd.date_range("2024-01-01", periods=n_rows, freq="h")
        y = random.uniform(-50, 50) + random.uniform(1, 20) * (cycle + noise)
        tables.append(pd.DataFrame({"unique_id": f"series {number}", "ds": times, "y": y}))
    return pd.concat(tables, ignore_index=True)


def timed(name: str, action: Callable[[], object]) -> object:
    wall, processor = perf_counter(), process_time()
    answer = action()
    print(f"{name:<50} {perf_counter() - wall:8.2f} s wall {process_time() - processor:8.2f} s processor", flush=True)
    return answer


def main(n_series: int = 100, n_rows: int = 500, **settings: object) -> None:
    table = panel(n_series, n_rows + 25)
    before = table.groupby("unique_id").head(n_rows)
    after = table.drop(before.index)
    size = f"{n_series} series x {n_rows} rows"
    forecaster = Forecaster(**settings)
    timed(f"fit, {size}", lambda: forecaster.fit(before))
    print(forecaster.report)
    timed("predict, 24 steps, 1000 paths", lambda: forecaster.predict(n_paths=1000))
    timed("predict from given histories", lambda: forecaster.predict(before, n_paths=1000))
    timed("update by one row each", lambda: forecaster.update(after.groupby("unique_id").head(1)))
    tested = timed("backtest, one window", lambda: forecaster.backtest(table, n_windows=1))
    print(tested.metrics.to_string())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    main()
