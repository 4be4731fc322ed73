"""The methods. Each module has `run(split, seed, settings)`; it is imported only when its method runs.

The peers need an environment of their own: benchmarks/panels/peers/README.md.
"""

import importlib
from collections.abc import Callable

from benchmarks.panels.forecast import QuantileForecast
from benchmarks.panels.panels import Split
from benchmarks.panels.stopwatch import Stopwatch

Method = Callable[[Split, int, dict, Stopwatch], QuantileForecast]

METHODS = {
    "seasonal_naive": "Seasonal naive",
    "smc": "SMC Transformer",
    "auto_ets": "AutoETS",
    "nhits": "NHITS",
}
"""Modules of this folder, and how tables call the method."""


def load_method(name: str) -> Method:
    return importlib.import_module(f"benchmarks.panels.methods.{name}").run
