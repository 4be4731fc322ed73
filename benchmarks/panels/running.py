"""One run: a method on a panel with a seed, scored and timed."""

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.panels.forecast import scores
from benchmarks.panels.methods import load_method
from benchmarks.panels.panels import PANELS, Split, read_panel, split_panel
from benchmarks.panels.stopwatch import Stopwatch
from benchmarks.panels.store import Record

PACKAGES = {
    "seasonal_naive": (),
    "smc": ("smc-transformer", "torch"),
    "auto_ets": ("statsforecast",),
    "nhits": ("neuralforecast", "torch"),
}
"""Whose versions are noted with a result."""


def split_name(horizons_back: int) -> str:
    """As it is noted with a result."""
    return ("test", "validation")[horizons_back] if horizons_back < 2 else f"validation {horizons_back}"


@lru_cache(maxsize=1)
def load_split(name: str, horizons_back: int, folder: Path | None) -> Split:
    return split_panel(PANELS[name], read_panel(PANELS[name], folder), horizons_back=horizons_back)


def run_method(split: Split, method: str, seed: int, settings: dict, *, horizons_back: int) -> Record:
    """The scores and seconds of one run, and its WQL over that of a seasonal naive forecast of the same rows."""
    stopwatch = Stopwatch()
    found = scores(split, load_method(method)(split, seed, settings, stopwatch))
    naive = scores(split, load_method("seasonal_naive")(split, 0, {}, Stopwatch()))
    return {
        "panel": split.panel.name,
        "split": split_name(horizons_back),
        "method": method,
        "seed": seed,
        "settings": settings,
        **found,
        "ratio": found["wql"] / naive["wql"],
        **stopwatch.seconds,
        "n_series": split.train["unique_id"].nunique(),
        "n_rows": len(split.train),
        "versions": _versions(method),
    }


def _versions(method: str) -> dict[str, str]:
    found = {}
    for package in PACKAGES[method]:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
