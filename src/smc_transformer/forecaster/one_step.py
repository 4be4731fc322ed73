"""What was predicted of each row of a history before it was seen: draws, and tables of means and quantiles."""

from collections.abc import Iterator

import numpy as np

from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.forecast import Forecast
from smc_transformer.forecaster.horizon_units import to_table
from smc_transformer.forecaster.table import Series
from smc_transformer.learning.step_widths import stretched
from smc_transformer.nn.streams import stream_key
from smc_transformer.support.randomness import LARGEST_SEED, as_generator


def one_step_forecasts(fitted: Fitted, given: list[Series], n_draws: int, seed: int | None) -> Iterator[Forecast]:
    """Of each series with a second row, the predictive distributions of its rows from the second complete one on.

    The draws of a row mean what those of the first step of a forecast from the row before it would: they have that
    step's width, and end at 0 where the targets do. Those of different rows are not joint paths.
    """
    settings, n_targets = fitted.settings, len(fitted.settings.targets)
    _, judged = fitted.follow(given, seed, keeping=True)
    for series, scaler, judgement in judged:
        if judgement.predicted is None:
            continue
        own = stream_key(series.name, settings.seed if seed is None else seed, "one step")
        draws = judgement.predicted.sample(n_draws, as_generator(own & LARGEST_SEED))[..., :n_targets].double().numpy()
        widths = np.repeat(fitted.panel.widths_of(1), len(series))
        targets = scaler.first(n_targets)
        yield Forecast(
            names=(series.name,),
            times=(series.times,),
            targets=settings.targets,
            paths=to_table(stretched(draws, widths)[0], targets, fitted.panel.positive)[None],
            id_column=settings.id_column,
            time_column=settings.time_column,
            freq=settings.freq,
            scalers=(targets,),
            first=None,
            parts=None,
        )
