"""The next row of each of many series at once: an update without a Python object for each series.

What `Fitted.update` does series by series is done here column by column, with the same numbers to the bit. It is for
rows as a stream brings them: of series that are followed through a local view, one row each, one step after the last.
Everything else, and everything that is wrong, is left to `Fitted.update`, which knows what to do and how to say so.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.forecaster.calendar import calendar_features
from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.forecaster.fitted import FOLLOWING, Fitted, n_recent
from smc_transformer.forecaster.following import Judgement
from smc_transformer.forecaster.forecast import Number
from smc_transformer.forecaster.frequency import Frequency, TimeOutOfReachError, times_between
from smc_transformer.forecaster.limits import LARGEST, LARGEST_IN_STATISTICS
from smc_transformer.forecaster.names import with_names
from smc_transformer.forecaster.periods import period_frequency
from smc_transformer.forecaster.roster import Roster
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.surprise import surprise_rows
from smc_transformer.forecaster.table import Rows, as_pandas, read_rows
from smc_transformer.forecaster.view.bank import BankState
from smc_transformer.inference.state import ParticleState
from smc_transformer.nn.streams import Streams, stream_key

SERIES_AT_ONCE = 256
"""Series that take a step together: their noise and views stay in the cache, and threads share the chunks."""


class _Seen(NamedTuple):
    """Rows as the model sees them."""

    scaled: Float[Tensor, "series modelled"]
    known: Float[Tensor, "series known"]
    spread: Float[np.ndarray, "series modelled"]


class _Taken(NamedTuple):
    """Rows of some series that have been taken, but not put back."""

    chosen: list[int]  # which of the rows
    particles: ParticleState
    view: BankState
    judgement: Judgement
    spread: Float[np.ndarray, "series modelled"]


def tick(fitted: Fitted, table: Any, levels: Sequence[Number], distrust: Distrust | None) -> pd.DataFrame | None:
    """Take one new row of each series in a table, if that is what it holds; else None, and nothing has happened."""
    settings = fitted.settings
    roster = roster_of(fitted)
    if roster is None:
        return None
    named = with_names(as_pandas(table), settings.id_column, roster)
    rows = read_rows(named, settings, zone_of=fitted.some_time)
    found = _next_rows(rows, roster, settings)
    if found is None:
        return None
    places, times = found
    missing = np.isnan(rows.values).any(axis=1)
    chunks = [
        numbers[first : first + SERIES_AT_ONCE]
        for numbers in fitted.following.fleet.groups(rows.names, missing.tolist() if missing.any() else None)
        for first in range(0, len(numbers), SERIES_AT_ONCE)
    ]
    taken = _in_threads(partial(_take, fitted, roster, rows, places, distrust), chunks)
    done = [chunk for chunk in taken if chunk is not None]
    if len(done) < len(taken):
        return None
    for chunk in done:  # from here on nothing can go wrong
        fitted.following.fleet.put([rows.names[number] for number in chunk.chosen], chunk.particles)
        own, new = places[chunk.chosen], rows.values[chunk.chosen]
        roster.go_on(own, [times[number] for number in chunk.chosen], chunk.view, chunk.judgement.runs.numpy(), new)
    order = np.argsort(np.concatenate([chunk.chosen for chunk in done]))
    spread = np.concatenate([chunk.spread for chunk in done])[order]
    density, pit, runs = (torch.cat([chunk.judgement[part] for chunk in done])[order] for part in range(3))
    return _surprise(settings, rows, times, spread, Judgement(density, pit, runs), levels, distrust)


def roster_of(fitted: Fitted) -> Roster | None:
    """What is known of the followed series, column by column from now on; None where it cannot be."""
    series = fitted.following.series
    if isinstance(series, Roster):
        return series
    window, freq = fitted.model.config.window, fitted.settings.freq
    is_period = isinstance(freq, str) and period_frequency(freq) is not None
    if fitted.panel.view is None or not series or window is None or is_period:
        return None
    key_of = partial(stream_key, seed=fitted.settings.seed, purpose=FOLLOWING)
    roster = Roster(series, n_recent(fitted.settings), key_of)
    fitted.following = fitted.following._replace(series=roster)
    return roster


def _in_threads(work: Callable[[list[int]], _Taken | None], chunks: list[list[int]]) -> list[_Taken | None]:
    """The work on each chunk, by as many threads as torch may use, each of which has torch's operations to itself."""
    n_threads = torch.get_num_threads()
    if min(n_threads, len(chunks)) < 2:
        return list(map(work, chunks))
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as threads:
            return list(threads.map(work, chunks))
    finally:
        torch.set_num_threads(n_threads)  # threads that begin later take over the last number that any has set


def _take(
    fitted: Fitted,
    roster: Roster,
    rows: Rows,
    places: Int[np.ndarray, "series"],
    distrust: Distrust | None,
    chosen: list[int],
) -> _Taken | None:
    """See some rows and take a filter step for each; None where the model cannot hold a number."""
    own, view, here = rows.take(chosen), fitted.panel.view, places[chosen]
    assert view is not None
    bank = roster.views(here)
    with np.errstate(over="ignore", invalid="ignore"):
        seen = _look(fitted, own, bank)
    if seen is None:
        return None
    particles, streams = fitted.following.fleet.lend(own.names), Streams(torch.from_numpy(roster.keys[here]))
    runs = torch.from_numpy(roster.runs[here])
    judgement, denied = fitted.follower.take_step(particles, seen.scaled, seen.known, streams, runs, distrust)
    believed = own.values if distrust is None else np.where(denied.numpy(), np.nan, own.values)
    view.bank.observe(bank, believed.reshape(-1))
    return _Taken(chosen, particles, bank, judgement, seen.spread)


def _next_rows(rows: Rows, roster: Roster, settings: Settings) -> tuple[Int[np.ndarray, "series"], list[Any]] | None:
    """Where the series of the rows are on the roster, and their times on the grid.

    None where a row is not the only and next one of a series that is known, or holds what must not be.
    """
    places = [roster.places.get(name, -1) for name in rows.names]
    if min(places) < 0 or len(set(places)) < len(places):
        return None
    if np.isnan(rows.known).any() or (np.abs(rows.values) > LARGEST_IN_STATISTICS).any():
        return None
    steps: dict[Any, Any] = {}  # mostly the same for all series
    times = []
    for place, time in zip(places, rows.times.tolist(), strict=True):
        both = (roster.last_times[place], time)
        if both not in steps:
            steps[both] = next_time(*both, settings.freq)
        times.append(steps[both])
    return None if None in steps.values() else (np.array(places), times)


def next_time(last: Any, time: Any, freq: Frequency) -> Any:
    """The time after the last one, as the grid of a series has it; None where that is not this time."""
    if not isinstance(freq, str):
        return time if time == last + freq else None
    return _next_timestamp(last, time, freq, str(last.tz), last.unit, time.unit) if time > last else None


@lru_cache(1024)
def _next_timestamp(last: Any, time: Any, freq: str, *_: Any) -> Any:
    """The same of timestamps; equal ones may differ in zone or unit, so these are arguments too."""
    try:
        if time - last > pd.Timedelta(days=4000):  # of a grid of hours that would be long
            return None
        grid = times_between(last, time, freq)
    except TimeOutOfReachError:
        return None
    return grid[1] if len(grid) == 2 and grid[0] == last and grid[1] == time else None


def _look(fitted: Fitted, rows: Rows, state: BankState) -> _Seen | None:
    """See rows from where their series are; None where the model cannot hold a number."""
    panel, settings = fitted.panel, fitted.settings
    assert panel.view is not None
    said, shape = panel.view.glance(state, 1), rows.values.shape
    anchor, unit = said.anchor.reshape(shape), said.unit.reshape(shape)
    if panel.view.counts:
        anchor, unit = np.zeros(shape), np.ones(shape)
    scaled = (rows.values - anchor) / unit
    inputs = panel.known_scaler.transform(rows.known)
    if (np.abs(scaled) > LARGEST).any() or (np.abs(inputs) > LARGEST).any():
        return None
    features = said.features.reshape(len(scaled), -1)
    known = np.concatenate((inputs, calendar_features(rows.times, settings.calendar), features), axis=1)
    return _Seen(torch.from_numpy(scaled).float(), torch.from_numpy(known).float(), unit)


def _surprise(
    settings: Settings,
    rows: Rows,
    times: Sequence[Any],
    spread: Float[np.ndarray, "series modelled"],
    judgement: Judgement,
    levels: Sequence[Number],
    distrust: Distrust | None,
) -> pd.DataFrame:
    """The table of `surprise_table`."""
    n_targets = len(settings.targets)
    values = rows.values[:, :n_targets]
    # As `Scaler.log_slope`, of a view that knows no logarithms.
    density = judgement.log_density[:, :n_targets].double().numpy() + -np.log(spread[:, :n_targets])
    pit = judgement.pit[:, :n_targets].double().numpy()
    runs = judgement.runs[:, :n_targets]
    denied = np.zeros(values.shape, bool) if distrust is None else distrust.denies(runs).numpy()
    row, target = np.nonzero(~np.isnan(values))
    rows_of, targets_of = row.tolist(), target.tolist()
    names, shown = [rows.names[number] for number in rows_of], [times[number] for number in rows_of]
    numbers = (array[row, target] for array in (values, density, pit, denied))
    columns = (names, shown, [settings.targets[number] for number in targets_of], *numbers)
    return surprise_rows(settings, columns, levels, distrust)
