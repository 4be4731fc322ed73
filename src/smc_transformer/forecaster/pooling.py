"""Statistics of columns over all series, also those of other processes.

Each series gives its sums, and the sums are added in the order of the series: the same bits however the series are
shared between processes, so that a training can be resumed by another number of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from smc_transformer.support import processes


class Moments(NamedTuple):
    """Of columns; NaN for those without any value."""

    mean: Float[np.ndarray, "column"]
    deviation: Float[np.ndarray, "column"]


def pooled_moments(series: Sequence[Float[np.ndarray, "_ column"]]) -> Moments:
    """Mean and deviation of each column over the rows of all series; NaN is missing."""
    counts = _added([(~np.isnan(one)).sum(axis=0).astype(float) for one in series])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = _added([np.nansum(one, axis=0) for one in series]) / counts
        squares = _added([np.nansum(np.square(one - mean), axis=0) for one in series])
        return Moments(mean, np.sqrt(squares / counts))


def pooled_largest(series: Sequence[Float[np.ndarray, "_ column"]]) -> Float[np.ndarray, "column"]:
    """The largest absolute value of each column over all series; 0 without any."""
    own = [np.abs(np.nan_to_num(one)).max(axis=0, initial=0.0) for one in series]
    return np.max(processes.gather(np.max(own, axis=0)), axis=0)


def _added(of_series: list[Float[np.ndarray, "column"]]) -> Float[np.ndarray, "column"]:
    return np.concatenate(processes.gather(np.stack(of_series))).sum(axis=0)
