"""The future inputs of a forecast, read from a table and put on the grid of its times."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.table import Name, Series, TableError, check_known


def read_future(
    read: Callable[..., list[Series]],
    fitted: Fitted,
    times: Mapping[Name, pd.Index],
    future: Any,
    steps: Sequence[int] | None = None,
) -> dict[Name, Series]:
    """The future inputs of each series at the times of a forecast.

    Args:
        read: how the forecaster reads a table.
        fitted: what the fit has left behind.
        times: those of the forecast, of each series.
        future: the table; None where the forecaster has no future inputs.
        steps: at which they must be known (None: at all); elsewhere they may be absent, and are the means of the fit.
    """
    settings = fitted.settings
    if not settings.future_inputs:
        if future is not None:
            raise TableError("future was given, but the forecaster has no future inputs")
        return {name: Series.of_inputs(name, index, np.empty((len(index), 0))) for name, index in times.items()}
    if future is None:
        raise TableError(
            f"a forecast needs the future inputs {list(settings.future_inputs)} at the times ahead: "
            f"give them as future, a table with {settings.id_column!r} and {settings.time_column!r}"
        )
    given = {series.name: series for series in read(future, values=(), known_gaps=True)}
    found, means = {}, fitted.panel.known_scaler.shift
    for name, index in times.items():
        if name not in given:
            raise TableError(f"future has no rows of series {name!r}")
        needed = np.isin(np.arange(len(index)) + 1, np.arange(len(index)) + 1 if steps is None else steps)
        places = given[name].times.get_indexer(index)
        absent = places < 0
        if (absent & needed).any():
            first = index[int(np.flatnonzero(absent & needed)[0])]
            raise TableError(f"future has no row of series {name!r} at {first}, which the forecast needs")
        known = np.where(absent[:, None], np.nan, given[name].known[places])
        check_known(Series.of_inputs(name, index[needed], known[needed]), settings.future_inputs)
        found[name] = Series.of_inputs(name, index, np.where(np.isnan(known), means, known))
    return found
