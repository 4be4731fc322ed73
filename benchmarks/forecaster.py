"""The forecaster on whole panels, default settings: `python -m benchmarks.forecaster [--threads 2] [--only gaps]`.

Five panels as users have them, simulated: seconds of a whole `fit` and of `predict` with 1000 paths, and the CRPS of
the forecasts of the horizon after it beside that of the values one cycle before. For the first panel also an update by
one row. Wall time is what users wait for; processor time is what can be compared on a busy machine. Nothing is tuned on
these panels: they are for seconds.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd
import torch

from smc_transformer.forecaster import Forecaster

N_PATHS = 1000


@dataclass(frozen=True)
class Case:
    """A panel, how far ahead it is forecast, and how long a fit of it may take on two idle cores."""

    n_series: int
    shortest: int  # rows of a series
    longest: int
    at_most: float  # seconds
    predict_at_most: float | None = None  # the same of its forecast
    share_missing: float = 0.0
    cycle: int = 24  # rows
    settings: dict[str, Any] = field(default_factory=lambda: {"horizon": 24, "freq": "h"})


CASES = {
    "complete": Case(100, 500, 500, 30, predict_at_most=2),
    "gaps": Case(100, 500, 500, 40, share_missing=0.1),
    "short": Case(366, 70, 300, 60, cycle=12, settings={"horizon": 24, "freq": "MS"}),
    "daily": Case(111, 735, 735, 120, share_missing=0.1, cycle=7, settings={"horizon": 56, "freq": "D"}),
    "many": Case(1000, 84, 84, 60, predict_at_most=5, cycle=12, settings={"horizon": 12, "freq": "MS"}),
}


def panel(case: Case, seed: int = 0) -> pd.DataFrame:
    """Cycles of different sizes and levels with autocorrelated noise, the horizon after the last row included."""
    random = np.random.default_rng(seed)
    tables = []
    for number in range(case.n_series):
        n_rows = int(random.integers(case.shortest, case.longest + 1)) + case.settings["horizon"]
        noise = random.normal(size=n_rows)
        for row in range(1, n_rows):
            noise[row] += 0.8 * noise[row - 1]
        cycle = np.sin(2 * np.pi * (np.arange(n_rows) + random.integers(case.cycle)) / case.cycle)
        y = random.uniform(-50, 50) + random.uniform(1, 20) * (random.uniform(0.5, 3) * cycle + noise)
        y[1:][random.random(n_rows - 1) < case.share_missing] = np.nan
        times = pd.date_range("1990-01-01", periods=n_rows, freq=case.settings["freq"])
        tables.append(pd.DataFrame({"unique_id": f"series {number:03}", "ds": times, "y": y}))
    return pd.concat(tables, ignore_index=True)


def split(table: pd.DataFrame, horizon: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows to fit, and those of the horizon after them."""
    after = table.groupby("unique_id", sort=False).tail(horizon)
    return table.drop(after.index), after


def crps(paths: np.ndarray, observed: np.ndarray) -> float:
    """Mean over series and steps of E|X - y| - E|X - X'| / 2, from paths (series, path, step); NaN is missing."""
    ordered, n = np.sort(paths, axis=1), paths.shape[1]
    ranks = 2 * np.arange(1, n + 1) - n - 1
    spread = (ordered * ranks[None, :, None]).sum(axis=1) / n**2  # half of the mean difference of two paths
    return float(np.nanmean(np.abs(paths - observed[:, None]).mean(axis=1) - spread))


def timed(name: str, action: Callable[[], Any], at_most: float | None = None) -> Any:
    wall, processor = perf_counter(), process_time()
    answer = action()
    seconds, target = perf_counter() - wall, "" if at_most is None else f"   (at most {at_most:g} s)"
    print(f"{name:<50} {seconds:8.2f} s wall {process_time() - processor:8.2f} s processor{target}", flush=True)
    return answer


def measure(name: str, case: Case, **settings: Any) -> None:
    """Print what a panel costs, and how good its forecasts are."""
    horizon = case.settings["horizon"]
    before, after = split(panel(case), horizon)
    rows = f"{case.shortest}" if case.shortest == case.longest else f"{case.shortest} to {case.longest}"
    forecaster = Forecaster(**{**case.settings, **settings})
    label = f"fit, {name}: {case.n_series} series x {rows} rows"
    timed(label, lambda: forecaster.fit(before, progress=False), case.at_most)
    print(forecaster.report)
    predict = f"predict, {horizon} steps, {N_PATHS} paths"
    forecast = timed(predict, lambda: draws(forecaster), case.predict_at_most)
    truth = after["y"].to_numpy().reshape(case.n_series, horizon)
    lags = -(-horizon // case.cycle) * case.cycle
    naive = np.stack([one["y"].to_numpy()[-lags:][:horizon] for _, one in before.groupby("unique_id", sort=False)])
    naive = np.where(np.isnan(naive), np.nanmean(naive, axis=1, keepdims=True), naive)
    print(f"CRPS {crps(forecast, truth):.4f}, of the values one cycle before {crps(naive[:, None], truth):.4f}")
    if name == "complete":
        first = after.groupby("unique_id", sort=False).head(1)
        timed("update by one row each", lambda: forecaster.update(first))


def draws(forecaster: Forecaster) -> np.ndarray:
    """Paths (series, path, step) of the only target, once the intervals that users ask for have been made too."""
    forecast = forecaster.forecast(n_paths=N_PATHS)
    forecast.table(level=[80, 95])
    return forecast.paths[..., 0]


def main(only: list[str] | None = None, **settings: Any) -> None:
    """Measure all panels, or some."""
    for name in only or CASES:
        measure(name, CASES[name], **settings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=CASES)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    main(options.only)
