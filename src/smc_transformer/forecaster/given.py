"""Future values that a scenario fixes, read from a table and put on the grid of the forecast."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from smc_transformer.forecaster.names import with_names
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, TableError, as_pandas, check_columns, read_series


def read_given(
    table: Any, settings: Settings, times: Mapping[Name, pd.Index], last_times: Mapping[Name, Any]
) -> dict[Name, Float[np.ndarray, "horizon modelled"]]:
    """The values given for each series of a forecast at its times, in the table's units; NaN where none is given.

    Args:
        table: rows with series, time and one or more of the columns that the model predicts; NaN is not given.
        settings: of the forecaster.
        times: those of the forecast, of each series.
        last_times: those of the last rows before it.
    """
    table = with_names(as_pandas(table), settings.id_column, times)
    check_columns(table, (settings.id_column, settings.time_column))
    columns = [column for column in settings.modelled if column in table.columns]
    others = [name for name in table.columns if name not in (settings.id_column, settings.time_column, *columns)]
    if others or not columns:
        wrong = f"has the column {others[0]!r}" if others else "has none of them"
        raise TableError(f"given may hold columns that the model predicts, {list(settings.modelled)}, but {wrong}")
    some_time = next(iter(last_times.values()))
    found = {name: np.full((len(index), len(settings.modelled)), np.nan) for name, index in times.items()}
    places = [settings.modelled.index(column) for column in columns]
    # Without the inputs that are known ahead: these come in a table of their own.
    plain = replace(settings, future_inputs=())
    for series in read_series(table, plain, values=columns, zone_of=some_time, after=dict(last_times)):
        if series.name not in found:
            raise TableError(f"given has rows of series {series.name!r}, which is not among those forecast")
        ahead = times[series.name]
        if len(series) > len(ahead):
            raise TableError(
                f"given has a row of series {series.name!r} at {series.times[-1]}, after the last time of the "
                f"forecast, {ahead[-1]}: ask for more steps (h)"
            )
        found[series.name][: len(series), places] = series.values
    if all(np.isnan(values).all() for values in found.values()):
        raise TableError("given has no value: without any, a scenario is a forecast")
    return found
