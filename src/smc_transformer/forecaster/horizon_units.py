"""Values of the horizon in the table's units and in the model's: the one place that knows both."""

import numpy as np
from jaxtyping import Float

from smc_transformer.forecaster.limits import scale
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Series


def to_model(series: Series, settings: Settings, scaler: Scaler) -> Float[np.ndarray, "horizon modelled"]:
    """Values ahead (all modelled columns, NaN where unknown) as the model sees them, if it can hold them."""
    return scale(series, series.values, settings.modelled, scaler)


def to_table(
    paths: Float[np.ndarray, "path horizon target"], scaler: Scaler, positive: tuple[bool, ...] = ()
) -> Float[np.ndarray, "path horizon target"]:
    """Paths of the targets as the user sees them; `scaler` is that of the targets alone.

    Targets that are `positive`, as they have never been below 0, end at 0.
    """
    values = scaler.inverse(paths)
    return np.maximum(values, np.where(positive, 0.0, -np.inf)) if any(positive) else values
