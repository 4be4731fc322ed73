"""From a table to a trained model that follows each of its series: what `Forecaster.fit` does."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smc_transformer.forecaster.automatic import choose
from smc_transformer.forecaster.fitted import Fitted, Following
from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.names import as_one_series
from smc_transformer.forecaster.panel import Panel
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Series, TableError, as_pandas, hash_of, read_series
from smc_transformer.forecaster.training import TrainingReport, local_cutoffs, local_examples, scaled_examples, train
from smc_transformer.support import processes
from smc_transformer.support.checks import check_count

logger = logging.getLogger(__name__)

USUAL_HORIZON, FARTHEST_REACH = 1000, 10
"""Steps that a fit may always look ahead; beyond them at most so many times the rows of the longest series."""

VALIDATION_WINDOWS = 30
"""How many validation windows the default of `val_size` aims at."""
FEWEST_TRAINING_ROWS = 4
"""Before the horizon that is held out, for a series to have any held out; through the local view."""


def fit_table(
    asked: Mapping[str, Any], df: Any, val_size: int | None, *, progress: bool, checkpoint: Path | None
) -> tuple[Fitted, TrainingReport]:
    """Choose what was left open, read the series, train on all but their last rows, follow them to the end.

    Args:
        asked: arguments of `Forecaster` as they were given.
        df: the table; in a process group, that of this process' own series.
        val_size: rows held out at the end of each series; None: by `_held_out`.
        progress: show it.
        checkpoint: a folder from which an interrupted training is resumed.
    """
    settings, words = choose(asked, df)
    for name, chosen in words.items():
        logger.info("%s: %s", name, chosen)
    given = processes.together(lambda: read_series(as_one_series(as_pandas(df), settings.id_column), settings))
    _check_apart(given)
    n_series = sum(processes.gather(len(given)))
    _check_reach(settings, max(processes.gather(max(map(len, given), default=0))))
    held_out = processes.together(lambda: [_held_out(series, settings, val_size, n_series) for series in given])
    training = [series.rows(slice(0, len(series) - n)) for series, n in zip(given, held_out, strict=True)]
    panel = Panel.fit(settings, training)
    # An error now, not after the training.
    begun = processes.together(lambda: [panel.beginning(series) for series in given])
    # Held out of what is left.
    held_out = [n if n < len(series) - 1 else 0 for series, n in zip(begun, held_out, strict=True)]
    if settings.is_local:
        cutoffs = local_cutoffs(settings, [len(series) for series in begun], held_out)
        viewed, states, horizons = panel.begin(begun, cutoffs)
        examples = local_examples(panel, viewed, horizons, held_out)
    else:
        viewed, states, _ = panel.begin(begun)
        examples = scaled_examples(panel, viewed, held_out)
    if (described := panel.describe(states)) is not None:
        words["view"] = described
        logger.info("view: %s", described)
    model, report = train(panel, examples, progress=progress and processes.rank() == 0, checkpoint=checkpoint)
    until = {series.name: series.times[-1] for series in given}
    fitted = Fitted(settings, model, panel, Following(Fleet(), {}), until, words)
    fitted.following, _ = fitted.follow_viewed(viewed, states)
    return fitted, replace(report, chosen=words)


def _check_reach(settings: Settings, longest: int) -> None:
    """That the horizon is not far beyond all rows: nothing tells of its end, and each window would be drawn to it."""
    most = max(USUAL_HORIZON, FARTHEST_REACH * longest)
    if settings.horizon > most:
        raise TableError(
            f"horizon={settings.horizon} is far beyond the rows of the longest series, {longest}, which tell of "
            f"{most} steps at most; fit with a shorter horizon, and ask for h={settings.horizon} in the forecast"
        )


def _check_apart(given: list[Series]) -> None:
    """That no two processes have rows of the same series."""
    if processes.size() == 1:
        return
    own = [hash_of(series.name) for series in given]
    seen: dict[int, int] = {}
    for number, names in enumerate(processes.gather(np.array(own, dtype=np.uint64))):
        for name in names.tolist():
            if seen.setdefault(name, number) != number:
                place = own.index(name) if name in own else None
                which = "a series" if place is None else f"series {given[place].name!r}"
                raise TableError(
                    f"processes {seen[name]} and {number} both have rows of {which}: each needs whole series, "
                    f"so the rows of a series must follow each other in the table"
                )


def _held_out(series: Series, settings: Settings, val_size: int | None, n_series: int) -> int:
    """How many last rows of a series are kept out of training."""
    if val_size is not None:
        val_size = check_count(val_size, "val_size", at_least=0)
        if 0 < val_size < settings.horizon:
            raise ValueError(f"val_size must be 0 or at least the horizon, {settings.horizon}, got {val_size}")
        if val_size and len(series) < settings.window_length + val_size:
            raise TableError(
                f"series {series.name!r} has {len(series)} rows: too few for val_size={val_size} after a training "
                f"window of {settings.window_length}"
            )
        return val_size
    needed = FEWEST_TRAINING_ROWS if settings.is_local else settings.input_size
    if len(series) < needed + 2 * settings.horizon:
        return 0
    # Few series have few windows at their end: hold out more rows, as far as a fifth of them goes.
    wanted = settings.horizon + -(-VALIDATION_WINDOWS // n_series) - 1
    return max(settings.horizon, min(wanted, len(series) // 5, len(series) - needed - settings.horizon))
