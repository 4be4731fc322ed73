"""How surprising observed values were, as a table."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from smc_transformer.forecaster.distrust import Distrust, is_outside
from smc_transformer.forecaster.fitted import Judged
from smc_transformer.forecaster.forecast import Number
from smc_transformer.forecaster.periods import as_shown
from smc_transformer.forecaster.settings import Settings


def surprise_table(
    settings: Settings, judged: Sequence[Judged], levels: Sequence[Number], distrust: Distrust | None = None
) -> pd.DataFrame:
    """A row for each observed target value, by series and time.

    Values outside the central intervals of these levels are flagged, and those that were distrusted, if any can be.
    """
    return surprise_rows(settings, zip(*surprises(settings, judged, distrust), strict=True), levels, distrust)


def surprises(settings: Settings, judged: Sequence[Judged], distrust: Distrust | None) -> list[tuple[Any, ...]]:
    """The rows of that table: series, time, target, value, log_density, pit, and whether it was distrusted."""
    n_targets, found = len(settings.targets), []
    for series, scaler, judgement in judged:
        times = as_shown(series.times, settings.freq)
        values = series.values[:, :n_targets]
        density = judgement.log_density[:, :n_targets].double().numpy() + scaler.first(n_targets).log_slope(values)
        pit = judgement.pit[:, :n_targets].double().numpy()
        denied = np.zeros(values.shape, bool) if distrust is None else distrust.denies(judgement.runs).numpy()
        for row, target in np.argwhere(~np.isnan(values)):
            numbers = (array[row, target] for array in (values, density, pit, denied))
            found.append((series.name, times[row], settings.targets[target], *numbers))
    return found


def surprise_rows(
    settings: Settings, columns: Iterable[Any], levels: Sequence[Number], distrust: Distrust | None
) -> pd.DataFrame:
    """The table from its columns."""
    names = (settings.id_column, settings.time_column, "target", "value", "log_density", "pit", "distrusted")
    found: dict[str, Any] = dict(zip(names, columns, strict=False))
    if not found or len(found["value"]) == 0:  # nothing was observed
        found = {name: np.array([], dtype=object) for name in names[:3]} | {name: [] for name in names[3:]}
    numbers = {name: np.asarray(found.pop(name), dtype=float) for name in names[3:6]}
    distrusted = np.asarray(found.pop("distrusted"), dtype=bool)
    pits = torch.from_numpy(numbers["pit"])
    flags = {f"outside-{level:g}": is_outside(pits, level).numpy() for level in levels}
    denied = {} if distrust is None else {"distrusted": distrusted}
    rows = pd.RangeIndex(len(pits))
    return pd.DataFrame({**found, **numbers, **flags, **denied}, index=rows, copy=False)
