"""Small tables and forecasters for the tests."""

import numpy as np
import pandas as pd

from smc_transformer.forecaster import Forecaster

TINY = {"d_model": 8, "d_ff": 8, "window": 6, "n_particles": 5}
SHORT = {"likelihood_steps": 3, "forecast_steps": 2, "batch_size": 8, "validations": 1}


def make(**settings):
    """A forecaster of small size that trains for a moment: enough for everything that does not depend on skill."""
    defaults = {"input_size": 10, "horizon": 4, "freq": 1, "config": TINY, "training": SHORT, "n_particles": 16}
    return Forecaster(**{**defaults, **settings})


def series(name, values, start=0, **columns):
    values = np.asarray(values, dtype=float)
    return pd.DataFrame({"unique_id": name, "ds": np.arange(start, start + len(values)), "y": values, **columns})


def walks(*lengths, seed=0):
    """Autoregressions of the given lengths, called a, b, ..., with levels and sizes of their own."""
    random = np.random.default_rng(seed)
    tables = []
    for number, length in enumerate(lengths):
        y = autoregression(random, length)
        tables.append(series(chr(ord("a") + number), 10 * number + (1 + number) * y))
    return pd.concat(tables, ignore_index=True)


def autoregression(random, length, coefficient=0.8, variance=0.5):
    y = random.normal(size=length) * np.sqrt(variance)
    y[0] = random.normal() * np.sqrt(variance / (1 - coefficient**2))
    for t in range(1, length):
        y[t] += coefficient * y[t - 1]
    return y


def head(table, n_rows):
    return table.groupby("unique_id", sort=False).head(n_rows)


def rows_between(table, first, last):
    """Rows of every series from the first to the last (not included)."""
    place = table.groupby("unique_id", sort=False).cumcount()
    return table[(place >= first) & (place < last)]
