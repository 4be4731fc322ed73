"""Our forecaster as a new user calls it: the horizon, and nothing else."""

import inspect

import numpy as np

from benchmarks.panels.forecast import QuantileForecast, aligned
from benchmarks.panels.metrics import LEVELS
from benchmarks.panels.panels import Split
from benchmarks.panels.stopwatch import Stopwatch
from smc_transformer import Forecaster


def run(split: Split, seed: int, settings: dict, stopwatch: Stopwatch) -> QuantileForecast:
    with stopwatch.part("fit"):
        forecaster = fitted(split, seed, settings)
    return forecast(split, forecaster, stopwatch)


def fitted(split: Split, seed: int, settings: dict) -> Forecaster:
    chosen = {"horizon": split.panel.horizon, "seed": seed, **given_frequency(split.panel.frequency), **settings}
    return Forecaster(**chosen).fit(split.train, progress=False)


def forecast(split: Split, forecaster: Forecaster, stopwatch: Stopwatch) -> QuantileForecast:
    with stopwatch.part("predict"):
        drawn = forecaster.forecast()
        table = drawn.table([80, 95], list(LEVELS))
    bounds = {percent: aligned(split, table, [f"y-lo-{percent}", f"y-hi-{percent}"]) for percent in (80, 95)}
    return QuantileForecast(
        aligned(split, table, [f"y-q-{round(100 * level)}" for level in LEVELS]),
        {percent: (bound[..., 0], bound[..., 1]) for percent, bound in bounds.items()},
        {percent: own_coverage(drawn.paths[..., 0], percent) for percent in bounds},
    )


def own_coverage(paths: np.ndarray, percent: int) -> float:
    """The share of the paths (series, path, step) inside the central intervals that they give."""
    tail = (1 - percent / 100) / 2
    lower, upper = np.quantile(paths, [tail, 1 - tail], axis=1)
    return float(np.mean((lower[:, None] <= paths) & (paths <= upper[:, None])))


def given_frequency(frequency: str) -> dict[str, str]:
    """Nothing where the forecaster finds the frequency by itself; else it has to be told."""
    default = inspect.signature(Forecaster).parameters["freq"].default
    return {} if default in ("auto", None) else {"freq": frequency}
