"""The next row of each of many series at once: an update without a Python object for each series.

What `Fitted.update` does series by series is done here column by column, with the same numbers to the bit. It is for
rows as a stream brings them: of series that are followed through a local view, one row each, one step after the last.
Rows of other series in the same table are stepped beside them, as `Fitted.update` does it; and what is wrong is left to
the reader of whole series, which knows how to say so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smc_transformer.forecaster.calendar import calendar_features
from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.forecaster.fitted import FOLLOWING, Fitted, n_recent
from smc_transformer.forecaster.following import Judgement, StreamKeys
from smc_transformer.forecaster.forecast import Number
from smc_transformer.forecaster.limits import LARGEST, LARGEST_IN_STATISTICS
from smc_transformer.forecaster.names import Name, with_names
from smc_transformer.forecaster.next_time import as_next_time
from smc_transformer.forecaster.periods import period_frequency
from smc_transformer.forecaster.plain_rows import PlainRows, read_plain
from smc_transformer.forecaster.roster import Roster
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.surprise import surprise_rows, surprises
from smc_transformer.forecaster.table import Rows, TableError, as_pandas, read_rows, read_series
from smc_transformer.inference import follow
from smc_transformer.inference.state import ParticleState
from smc_transformer.kernels.follow import TakenRow
from smc_transformer.nn.streams import stream_key

SERIES_AT_ONCE, FEWEST_AT_ONCE = 256, 32
"""Series that take a step together: their noise and views stay in the cache, and threads share the chunks. For fewer, a
thread is not worth it."""


class _Seen(NamedTuple):
    """Rows as the model sees them."""

    scaled: Float[Tensor, "series modelled"]
    known: Float[Tensor, "series known"]
    spread: Float[np.ndarray, "series modelled"]


class Batch(NamedTuple):
    """A row of each of some series."""

    names: Sequence[Name]
    times: pd.Index | Sequence[Any]
    values: Float[np.ndarray, "series modelled"]
    known: Float[np.ndarray, "series input"]


class _Taken(NamedTuple):
    """Rows of some series that have been taken, but not put back."""

    particles: ParticleState
    believed: Float[np.ndarray, "series modelled"]  # the values that the views are to take
    judgement: Judgement
    spread: Float[np.ndarray, "series modelled"]


def tick(fitted: Fitted, table: Any, levels: Sequence[Number], distrust: Distrust | None) -> pd.DataFrame | None:
    """Take the rows of a table, those that are the next of their series together; None: nothing has happened.

    That is the answer where there are none of these, or something is wrong.
    """
    settings = fitted.settings
    roster = roster_of(fitted)
    if roster is None:
        return None
    plain = read_plain(table, settings, fitted.some_time)
    if plain is not None and (found := _tick_plain(fitted, roster, plain, levels, distrust)) is not None:
        return found
    named = with_names(as_pandas(table), settings.id_column, roster)
    rows = read_rows(named, settings, zone_of=fitted.some_time)
    is_next, places, times = _next_rows(rows, roster, settings)
    if not is_next.any():
        return None
    stepped = None
    if not is_next.all():  # the others: of a new series, say, or after rows that are absent
        try:
            after = fitted.following.last_times()
            stepped = fitted.step(
                read_series(named[~is_next], settings, zone_of=fitted.some_time, after=after), distrust
            )
        except TableError:  # it counts the rows of a part of the table
            return None
    own = rows.take(np.flatnonzero(is_next).tolist())
    taken = _steps(fitted, roster, own, places, distrust)
    if taken is None:
        return None
    last_times = times.tolist()
    assert fitted.panel.view is not None
    numbers = [chosen for chosen, _ in taken]
    alone = len(taken) == 1  # one group has all rows in their order
    together = places if alone else places[np.concatenate(numbers)]
    # Of all or, after an error, of none.
    roster.observe(fitted.panel.view.bank, together, np.concatenate([chunk.believed for _, chunk in taken]))
    for chosen, chunk in taken:  # from here on nothing can go wrong
        fitted.following.fleet.put([own.names[number] for number in chosen], chunk.particles)
        own_times = [last_times[number] for number in chosen]
        here = places if alone else places[chosen]
        roster.go_on(here, own_times, chunk.judgement.runs.numpy(), own.values if alone else own.values[chosen])
    spread, judgement = _in_order(taken)
    judged = _arrays(judgement, distrust)
    answers: Iterable[Any] = _surprises(settings, own.names, times, own.values, spread, *judged)
    if stepped is not None:
        fitted.put(stepped)
        order = {name: place for place, name in enumerate(dict.fromkeys(rows.names))}
        both = [*zip(*answers, strict=True), *surprises(settings, stepped.judged, distrust)]
        both.sort(key=lambda answer: order[answer[0]])  # those of a series stay in their order
        answers = zip(*both, strict=True)
    return surprise_rows(settings, answers, levels, distrust)


def _tick_plain(
    fitted: Fitted, roster: Roster, rows: PlainRows, levels: Sequence[Number], distrust: Distrust | None
) -> pd.DataFrame | None:
    """The same for a few rows that are plain, all of them the next of their series; None: nothing has happened."""
    settings, view, fleet = fitted.settings, fitted.panel.view, fitted.following.fleet
    found = [roster.places.get(name, -1) for name in rows.names]
    if -1 in found or len(set(found)) < len(found) or (np.abs(rows.values) > LARGEST_IN_STATISTICS).any():
        return None
    places = np.array(found, dtype=np.int64)
    times = [
        as_next_time(roster.last_times[place], time, settings.freq)
        for place, time in zip(found, rows.times, strict=True)
    ]
    if any(time is None for time in times) or len(fleet.groups(rows.names)) > 1:
        return None
    batch = Batch(rows.names, times, rows.values, rows.known)
    alone = _take_one(fitted, roster, found[0], batch) if len(times) == 1 and distrust is None else None
    if alone is not None:
        roster.go_on_alone(found[0], times[0], rows.values[0])
        density, pit, denied, spread = alone.log_density[None], alone.pit[None], None, alone.unit[None]
    else:
        taken = _step(fitted, roster, places, batch, distrust)
        if taken is None:
            return None
        assert view is not None
        roster.observe(view.bank, places, taken.believed)
        fleet.put(rows.names, taken.particles)  # from here on nothing can go wrong
        roster.go_on(places, times, taken.judgement.runs.numpy(), rows.values)
        (density, pit, denied), spread = _arrays(taken.judgement, distrust), taken.spread
    # Times as the grid has them, which need not be of the same unit.
    as_they_are = all(time is given for time, given in zip(times, rows.times, strict=True))
    shown = rows.time_column if as_they_are else pd.DatetimeIndex(times)
    columns = _surprises(settings, rows.name_column, shown, rows.values, spread, density, pit, denied)
    return surprise_rows(settings, columns, levels, distrust)


def _take_one(fitted: Fitted, roster: Roster, place: int, row: Batch) -> TakenRow | None:
    """Take the row of one series where it stands, view and particles in one call of C; None: nothing has happened."""
    panel, settings, follower = fitted.panel, fitted.settings, fitted.follower
    assert panel.view is not None
    model = follow.follow_model(*follower)
    bank, columns = roster.columns(panel.view.bank, place)
    state, number = fitted.following.fleet.where(row.names[0])
    if model is None or bank is None or state.capacity != follower.network.config.window:
        return None
    given = calendar_features(row.times, settings.calendar)[0]
    if row.known.shape[1]:
        inputs = panel.known_scaler.transform(row.known)[0]
        if (np.abs(inputs) > LARGEST).any():
            return None
        given = np.concatenate((inputs, given))
    found = follow.follow_block(model, state).take_row(
        number, int(roster.stream_keys[place]), bank, panel.view.compiled, columns, row.values[0], given, LARGEST
    )
    if found is not None:
        state.trajectories_are_own = state.trajectories_are_own and not found.resampled
    return found


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


def _steps(
    fitted: Fitted, roster: Roster, rows: Rows, places: Int[np.ndarray, "series"], distrust: Distrust | None
) -> list[tuple[list[int], _Taken]] | None:
    """A filter step of each series, in chunks, with the numbers of their rows; None: it cannot hold a number."""
    missing = np.isnan(rows.values).any(axis=1)
    shares = -(-len(rows.names) // torch.get_num_threads())
    at_once = min(SERIES_AT_ONCE, max(FEWEST_AT_ONCE, shares))
    chunks = [
        numbers[first : first + at_once]
        # Apart: one gap costs its whole batch an encoder state for each particle.
        for numbers in fitted.following.fleet.groups(rows.names, missing.tolist() if missing.any() else None)
        for first in range(0, len(numbers), at_once)
    ]
    taken = _in_threads(partial(_take, fitted, roster, rows, places, distrust), chunks)
    done = [(chosen, chunk) for chosen, chunk in zip(chunks, taken, strict=True) if chunk is not None]
    return done if len(done) == len(chunks) else None


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
    own = rows.take(chosen)
    return _step(fitted, roster, places if own is rows else places[chosen], Batch(*own), distrust)


def _step(
    fitted: Fitted, roster: Roster, here: Int[np.ndarray, "series"], own: Batch, distrust: Distrust | None
) -> _Taken | None:
    """The same for all rows of a batch, of series of one layout at these places on the roster."""
    with np.errstate(over="ignore", invalid="ignore"):
        seen = _look(fitted, roster, here, own)
    if seen is None:
        return None
    particles, streams = fitted.following.fleet.lend(own.names), StreamKeys(torch.from_numpy(roster.stream_keys[here]))
    runs = torch.from_numpy(roster.runs[here])
    said, denied = fitted.follower.take_step(particles, seen.scaled, seen.known, streams, runs, distrust)
    assert said.judgement is not None
    believed = own.values if denied is None else np.where(denied.numpy(), np.nan, own.values)
    return _Taken(particles, believed, said.judgement, seen.spread)


def _next_rows(
    rows: Rows, roster: Roster, settings: Settings
) -> tuple[Bool[np.ndarray, "row"], Int[np.ndarray, "series"], pd.Index]:
    """Which rows are the only and next one of a series that is known, and hold what they may.

    Also the places of their series on the roster, and their times as the grid has them.
    """
    places = [roster.places.get(name, -1) for name in rows.names]
    times_of = Counter(places) if len(places) > 1 else {}
    absent = np.isnan(rows.known).any(axis=1) if rows.known.shape[1] else None
    far = (np.abs(rows.values) > LARGEST_IN_STATISTICS).any(axis=1)
    may_be = ~far if absent is None else ~(far | absent)
    steps: dict[Any, Any] = {}  # mostly the same for all series
    found, chosen, as_they_are = [], [], True
    for row, (place, time, may) in enumerate(zip(places, rows.times.tolist(), may_be.tolist(), strict=True)):
        if place < 0 or not may or times_of.get(place, 1) > 1:
            continue
        pair = (roster.last_times[place], time)
        if pair not in steps:
            steps[pair] = as_next_time(*pair, settings.freq)
            as_they_are &= steps[pair] is time or steps[pair] is None
        if steps[pair] is not None:
            chosen.append(row)
            found.append(steps[pair])
    if len(chosen) == len(places):
        return np.ones(len(places), bool), np.array(places), rows.times if as_they_are else pd.DatetimeIndex(found)
    is_next = np.zeros(len(places), bool)
    is_next[chosen] = True
    own_places = np.array([places[row] for row in chosen], dtype=np.int64)
    return is_next, own_places, rows.times[chosen] if as_they_are else pd.DatetimeIndex(found)


def _look(fitted: Fitted, roster: Roster, places: Int[np.ndarray, "series"], rows: Batch) -> _Seen | None:
    """See rows from where their series are; None where the model cannot hold a number."""
    panel, settings = fitted.panel, fitted.settings
    assert panel.view is not None
    said, shape = roster.glance(panel.view, places), rows.values.shape
    anchor, unit = said.anchor.reshape(shape), said.unit.reshape(shape)
    if panel.view.counts:
        anchor, unit = np.zeros(shape), np.ones(shape)
    scaled = (rows.values - anchor) / unit
    if (np.abs(scaled) > LARGEST).any():
        return None
    parts = [calendar_features(rows.times, settings.calendar), said.features.reshape(len(scaled), -1)]
    if rows.known.shape[1]:
        parts.insert(0, panel.known_scaler.transform(rows.known))
        if (np.abs(parts[0]) > LARGEST).any():
            return None
    known = np.concatenate(parts, axis=1)
    return _Seen(torch.from_numpy(scaled).float(), torch.from_numpy(known).float(), unit)


def _arrays(judgement: Judgement, distrust: Distrust | None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Log densities and PIT values of rows, (row, modelled), and which were denied, if any can be."""
    denied = None if distrust is None else distrust.denies(judgement.runs).numpy()
    return judgement.log_density.numpy(), judgement.pit.numpy(), denied


def _surprises(
    settings: Settings,
    names: Any,
    times: Any,
    values: Float[np.ndarray, "row modelled"],
    spread: Float[np.ndarray, "row modelled"],
    log_density: Float[np.ndarray, "row modelled"],
    pit: Float[np.ndarray, "row modelled"],
    denied: Bool[np.ndarray, "row modelled"] | None,
) -> tuple[Any, ...]:
    """The columns of `surprise_rows`; names and times are lists, or arrays of a table, of a row each."""
    n_targets = len(settings.targets)
    values = values[:, :n_targets]
    # As `Scaler.log_slope`, of a view that knows no logarithms.
    density = log_density[:, :n_targets].astype(np.float64) + -np.log(spread[:, :n_targets])
    pit = pit[:, :n_targets].astype(np.float64)
    denied = np.zeros(values.shape, bool) if denied is None else denied[:, :n_targets]
    row, target = np.nonzero(~np.isnan(values))
    if len(row) < len(values) or n_targets > 1:
        names, times = [names[number] for number in row.tolist()], times[row]
    numbers = (array[row, target] for array in (values, density, pit, denied))
    return names, times, [settings.targets[number] for number in target.tolist()], *numbers


def _in_order(taken: list[tuple[list[int], _Taken]]) -> tuple[Float[np.ndarray, "series modelled"], Judgement]:
    """The spreads and judgements of all chunks, in the order of the rows."""
    chunks = [chunk for _, chunk in taken]
    if len(chunks) == 1:  # one group has its rows in their order
        return chunks[0].spread, chunks[0].judgement
    order = np.argsort(np.concatenate([chosen for chosen, _ in taken]))
    judged = [chunk.judgement[:3] for chunk in chunks]
    density, pit, runs = (torch.cat(parts)[order] for parts in zip(*judged, strict=True))
    return np.concatenate([chunk.spread for chunk in chunks])[order], Judgement(density, pit, runs)
