"""Numbers that the model can hold: a larger one is an error that says where it is, not a NaN some steps later."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.table import Series, TableError

LARGEST = 1e15
"""Of a value in the model's units: the model's numbers have 32 bits, and the squares of larger ones leave them."""
LARGEST_IN_STATISTICS = 1e100
"""Of a value that statistics are taken of: deviations are sums of squares, and forecasts have variances."""


def scale(
    series: Series, values: Float[np.ndarray, "row column"], columns: Sequence[str], scaler: Scaler
) -> Float[np.ndarray, "row column"]:
    """Some columns of a series as the model sees them, if it can hold all of their values."""
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is named below
        scaled = scaler.transform(values)
    wrong = np.argwhere(~np.isnan(values) & ~(np.abs(scaled) <= LARGEST))
    if len(wrong):
        row, column = wrong[0].tolist()
        with np.errstate(over="ignore"):
            lowest, highest = (scaler.row(row).inverse(np.full(len(columns), end)) for end in (-LARGEST, LARGEST))
        raise TableError(
            f"series {series.name!r}, column {columns[column]!r} is {values[row, column]:g} at {series.times[row]}, "
            f"beyond all that the model can hold: as it is scaled here, a value may lie between "
            f"{lowest[column]:.3g} and {highest[column]:.3g}"
        )
    return scaled


def check_for_statistics(series: Series, values: Float[np.ndarray, "row column"], columns: Sequence[str]) -> None:
    """That means and deviations of some columns of a series are numbers."""
    wrong = np.argwhere(np.abs(values) > LARGEST_IN_STATISTICS)
    if len(wrong):
        row, column = wrong[0]
        raise TableError(
            f"series {series.name!r}, column {columns[column]!r} is {values[row, column]:g} at {series.times[row]}, "
            f"beyond all that a series can be scaled by: a value may be as large as {LARGEST_IN_STATISTICS:g}"
        )
