"""From series to the rows that the model reads.

Row s holds the modelled values of time s and the known inputs of time s + 1, so that what is known of a time informs
its prediction. Values are scaled by the statistics of their series, known inputs (which mean the same everywhere) by
those of all series together. Values then go into units of a typical one-step change, so that the net predicts numbers
of the order of one.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.forecaster.calendar import calendar_features
from smc_transformer.forecaster.limits import check_for_statistics, scale
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, Series, TableError
from smc_transformer.nn.encoders.changes import typical_size

FEWEST_ROWS = 3
"""Observed rows that a series needs for statistics of its own."""


@dataclass
class Panel:
    """What is known of a collection of series: how each is scaled."""

    settings: Settings
    known_scaler: Scaler  # of the inputs that are known ahead (without calendar features)
    units: Float[np.ndarray, "modelled"]  # typical one-step changes of the scaled modelled columns
    scalers: dict[Name, Scaler] = field(default_factory=dict)  # of the series of the fit; they include the units

    @classmethod
    def fit(cls, settings: Settings, training: list[Series]) -> "Panel":
        """Take all statistics from training rows."""
        known_kinds = ("standard",) * len(settings.future_inputs)
        for series in training:
            check_for_statistics(series, series.known, settings.future_inputs)
        known_scaler = Scaler.fit(np.concatenate([series.known for series in training]), known_kinds)
        plain = {series.name: _own_scaler(series, settings) for series in training}
        units = np.ones(len(settings.modelled))
        if settings.support() is None:
            levels = [scale(series, series.values, settings.modelled, plain[series.name]) for series in training]
            units = _typical_changes(levels)
        scalers = {name: scaler.in_units(units) for name, scaler in plain.items()}
        return cls(settings, known_scaler, units, scalers)

    def scaler(self, series: Series) -> Scaler:
        """That of the fit, or for a series that was not in it that of these rows."""
        found = self.scalers.get(series.name)
        return _own_scaler(series, self.settings).in_units(self.units) if found is None else found

    def known(self, series: Series) -> Float[np.ndarray, "row known"]:
        """The inputs that are known ahead, as the model sees them."""
        features = calendar_features(series.times, self.settings.calendar)
        columns = scale(series, series.known, self.settings.future_inputs, self.known_scaler)
        return np.concatenate((columns, features), axis=1)

    def rows(self, series: Series, scaler: Scaler, *, ahead: bool = True) -> Float[Tensor, "row n_inputs"]:
        """The rows of the model: values beside the known inputs of the next time, or of the same if not `ahead`.

        The known inputs after the last row are not known here, and 0.
        """
        values, known = scale(series, series.values, self.settings.modelled, scaler), self.known(series)
        if ahead:
            known = np.concatenate((known[1:], np.zeros((min(1, len(known)), known.shape[1]))))
        return torch.from_numpy(np.concatenate((values, known), axis=1)).float()

    def beginning(self, series: Series) -> Series:
        """The series from its first row in which everything is observed: the model starts from such a row."""
        complete = np.flatnonzero(~np.isnan(series.values).any(axis=1))
        if len(complete) == 0:
            raise TableError(
                f"series {series.name!r} has no row in which all of {list(self.settings.modelled)} are observed: "
                f"there is nothing to start from"
            )
        return series.rows(slice(int(complete[0]), None))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, without the scalers of the series."""
        return {"known_scaler": self.known_scaler.to_dict(), "units": self.units.tolist()}


def _own_scaler(series: Series, settings: Settings) -> Scaler:
    n_observed = int((~np.isnan(series.values[:, : len(settings.targets)])).any(axis=1).sum())
    if n_observed < FEWEST_ROWS:
        raise TableError(
            f"series {series.name!r} is too short to use: it has {n_observed} observed rows, "
            f"and at least {FEWEST_ROWS} are needed"
        )
    check_for_statistics(series, series.values, settings.modelled)
    return Scaler.fit(series.values, settings.kinds())


def _typical_changes(levels: list[Float[np.ndarray, "_ column"]]) -> Float[np.ndarray, "column"]:
    """The deviation of the one-step changes of each column, over all series (1 for a column that never changes)."""
    rows, changes = (
        torch.from_numpy(np.concatenate(parts)).unsqueeze(0)
        for parts in (levels, [np.diff(series, axis=0) for series in levels])
    )
    return typical_size(changes, rows).numpy()
