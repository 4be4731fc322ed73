"""How fast a forecaster follows many series: rows a second, the time of one row, forecasts of a few of them.

    python -m benchmarks --only fleet

The series are copies of a few that were fitted (64 particles, the default model with a local view): what is measured is
an update, not a fit, nor the making of the table that it is given. Processor time is counted, over all threads, beside
the time on the clock: on a busy machine the first is what an idle one would take on one core.
"""

import statistics
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np
import pandas as pd
import torch

from benchmarks.rows import row
from smc_transformer import Forecaster
from smc_transformer.forecaster.fitted import Following
from smc_transformer.forecaster.fleet import Fleet

HISTORY = 120
"""Rows of a series before those that are measured."""


def fitted(n_particles: int = 64) -> Forecaster:
    """A forecaster of a few daily series, barely trained."""
    times = pd.date_range("2024-01-01", periods=HISTORY, freq="D")
    parts = [pd.DataFrame({"unique_id": f"model {n}", "ds": times, "y": _values(n, 0, HISTORY)}) for n in range(8)]
    short = {"likelihood_steps": 2, "forecast_steps": 2}
    forecaster = Forecaster(horizon=14, training=short, n_particles=n_particles)
    return forecaster.fit(pd.concat(parts), progress=False)


def _values(number: int, first: int, n_rows: int) -> np.ndarray:
    random = np.random.default_rng((number, first))
    return 50 + 10 * np.sin(2 * np.pi * np.arange(first, first + n_rows) / 7) + random.normal(size=n_rows)


def enlarge(forecaster: Forecaster, n_series: int) -> list[str]:
    """Follow copies of the series under other names; returns the names."""
    following = forecaster.fitted.following
    models, names = list(following.series), [f"series {n}" for n in range(n_series)]
    fleet = Fleet([(names, following.fleet.take([models[n % len(models)] for n in range(n_series)]))])
    series = {name: following.series[models[n % len(models)]] for n, name in enumerate(names)}
    forecaster.fitted.following = Following(fleet, series)
    return names


def new_rows(names: list[str], step: int) -> pd.DataFrame:
    """The next row of each series."""
    time = pd.Timestamp("2024-01-01") + pd.Timedelta(days=HISTORY + step)
    values = 50 + 10 * np.sin(2 * np.pi * (HISTORY + step) / 7) + np.random.default_rng(step).normal(size=len(names))
    return pd.DataFrame({"unique_id": names, "ds": time, "y": values})


def seconds(work: Callable[[int], object], repetitions: int) -> tuple[float, float]:
    """Medians of the time on the clock and of processor time, after one run to warm up."""
    work(0)
    clock, processor = [], []
    for number in range(1, repetitions + 1):
        started = (perf_counter(), process_time())
        work(number)
        clock.append(perf_counter() - started[0])
        processor.append(process_time() - started[1])
    return statistics.median(clock), statistics.median(processor)


def measure(tiny: bool = False) -> list[dict]:
    """Rows a second with one row of each series, the time of a single row, and of forecasts of ten series."""
    sizes, repetitions = ((20, 50), 2) if tiny else ((100, 1000, 10_000), 3)
    found = []
    for n_series in sizes:
        forecaster = fitted(8 if tiny else 64)
        names = enlarge(forecaster, n_series)
        tables = [new_rows(names, step) for step in range(repetitions + 1)]
        clock, processor = seconds(lambda step: forecaster.update(tables[step]), repetitions)  # noqa: B023
        largest = n_series == sizes[-1] and not tiny
        threads = f"{torch.get_num_threads()} threads"
        found += [
            row(f"rows a second, {n_series} series, {threads}", str(n_series), n_series / clock,
                at_least=10_000 if largest else None),
            row(f"rows a second of processor time, {n_series} series", str(n_series), n_series / processor),
        ]  # fmt: skip
    times = 5 if tiny else 200
    tables = [new_rows(names[:1], repetitions + 1 + step) for step in range(times + 1)]
    clock, processor = seconds(lambda step: forecaster.update(tables[step]), times)
    found.append(row("one row of one series, ms", "1", 1e3 * clock, at_most=1.0))
    found.append(row("one row of one series, ms of processor time", "1", 1e3 * processor))
    few = names[: len(names) // 2 : max(1, len(names) // 20)][:10]
    clock, _ = seconds(lambda _: forecaster.predict(series=few, n_paths=200), 3)
    found.append(row("forecasts of 10 of them, 200 paths, ms", "10", 1e3 * clock))
    return found
