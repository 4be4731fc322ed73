"""Scaling of columns to mean 0 and deviation 1."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class NoWindowsError(ValueError):
    """The data could be read, but are too few to be split and scaled."""


class Scaling(NamedTuple):
    """Mean and deviation of each column."""

    mean: Float[np.ndarray, "column"]
    deviation: Float[np.ndarray, "column"]

    def __call__(self, values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
        """The scaled values."""
        return (values - self.mean) / self.deviation


def fit_scaling(values: Float[np.ndarray, "row column"], columns: tuple[str, ...]) -> Scaling:
    """Means and population deviations of what is not missing; a constant column keeps its unit (deviation 1)."""
    empty = np.isnan(values).all(axis=0)
    if empty.any():
        raise NoWindowsError(f"column {columns[int(empty.argmax())]!r} has no value to scale by: all are missing")
    # Compared exactly: rounding makes the computed deviation of a constant column small, but not 0.
    constant = np.nanmax(values, axis=0) == np.nanmin(values, axis=0)
    mean = np.where(constant, np.nanmin(values, axis=0), np.nanmean(values, axis=0))
    return Scaling(mean, np.where(constant, 1.0, np.nanstd(values, axis=0)))
