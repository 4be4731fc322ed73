"""Our forecaster as a new user calls it: the horizon, and nothing else."""

import inspect

from benchmarks.panels.forecast import QuantileForecast, aligned
from benchmarks.panels.metrics import LEVELS
from benchmarks.panels.panels import Split
from benchmarks.panels.stopwatch import Stopwatch
from smc_transformer import Forecaster


def run(split: Split, seed: int, settings: dict, stopwatch: Stopwatch) -> QuantileForecast:
    chosen = {"horizon": split.panel.horizon, "seed": seed, **given_frequency(split.panel.frequency), **settings}
    with stopwatch.part("fit"):
        forecaster = Forecaster(**chosen).fit(split.train, progress=False)
    with stopwatch.part("predict"):
        table = forecaster.predict(quantiles=list(LEVELS), level=[80, 95])
    bounds = {percent: aligned(split, table, [f"y-lo-{percent}", f"y-hi-{percent}"]) for percent in (80, 95)}
    return QuantileForecast(
        aligned(split, table, [f"y-q-{round(100 * level)}" for level in LEVELS]),
        {percent: (bound[..., 0], bound[..., 1]) for percent, bound in bounds.items()},
    )


def given_frequency(frequency: str) -> dict[str, str]:
    """Nothing where the forecaster finds the frequency by itself; else it has to be told."""
    default = inspect.signature(Forecaster).parameters["freq"].default
    return {} if default in ("auto", None) else {"freq": frequency}
