"""How surprising observed values were, as a table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from smc_transformer.forecaster.distrust import Distrust, is_outside
from smc_transformer.forecaster.fitted import Judged
from smc_transformer.forecaster.forecast import Number
from smc_transformer.forecaster.settings import Settings


def surprise_table(
    settings: Settings, judged: Sequence[Judged], levels: Sequence[Number], distrust: Distrust | None = None
) -> pd.DataFrame:
    """A row for each observed target value, by series and time.

    Args:
        settings: of the forecaster.
        judged: rows of series and how surprising they were.
        levels: percentages of central intervals outside which a value is flagged.
        distrust: which values were taken for missing: they are flagged too, if there can be any.
    """
    n_targets = len(settings.targets)
    columns: dict[str, list[Any]] = {settings.id_column: [], settings.time_column: [], "target": []}
    numbers: dict[str, list[float]] = {"value": [], "log_density": [], "pit": []}
    denied: list[bool] = []
    for series, scaler, judgement in judged:
        values = series.values[:, :n_targets]
        density = judgement.log_density[:, :n_targets].double().numpy() + scaler.first(n_targets).log_slope(values)
        pit = judgement.pit[:, :n_targets].double().numpy()
        not_believed = None if distrust is None else distrust.denies(judgement.runs)
        for row, target in np.argwhere(~np.isnan(values)):
            columns[settings.id_column].append(series.name)
            columns[settings.time_column].append(series.times[row])
            columns["target"].append(settings.targets[target])
            numbers["value"].append(values[row, target])
            numbers["log_density"].append(density[row, target])
            numbers["pit"].append(pit[row, target])
            denied.append(not_believed is not None and bool(not_believed[row, target]))
    table = pd.DataFrame({**columns, **{name: np.array(found, float) for name, found in numbers.items()}})
    pits = torch.tensor(numbers["pit"], dtype=torch.double)
    for percent in levels:
        table[f"outside-{percent:g}"] = is_outside(pits, percent).numpy()
    if distrust is not None:
        table["distrusted"] = np.array(denied, bool)
    return table
