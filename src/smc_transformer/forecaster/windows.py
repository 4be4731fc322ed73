"""Windows of the series' rows for training and validation.

A window begins at a row in which everything is observed, as the model does; gaps inside it are missing values. Seen
through the local view, a window has a cutoff: the rows after it are seen as they are from there, as in a forecast.
Such windows may be short: they are right-aligned, and have not begun in rows that are NaN throughout
(learning/ragged.py).
"""

import logging

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smc_transformer.forecaster.panel import Horizons, Panel, Viewed
from smc_transformer.forecaster.table import TableError
from smc_transformer.learning import evenly_spaced
from smc_transformer.support import processes

logger = logging.getLogger(__name__)

FEW_MISSING = 0.1
"""Up to this share of windows with missing values are left out, but for series that would have none left: the others
train several times faster."""


FEWEST_BEFORE = 2
"""Rows of history in the shortest window."""
LARGEST_VALUE = 10.0
"""In units of the view: an outlier counts as one of this size in training."""


def training_cutoffs(n_rows: int, horizon: int, at_most: int) -> Int[np.ndarray, "cutoff"]:
    """Last rows of history in the windows of a series with so many training rows, evenly spaced.

    A series without room for a whole horizon has one cutoff, and misses the end of its horizon.
    """
    first, last = FEWEST_BEFORE - 1, n_rows - 1 - horizon
    if n_rows <= FEWEST_BEFORE:
        return np.zeros(0, dtype=int)
    if last <= first:
        return np.array([max(first, n_rows // 2 - 1)])
    return first + evenly_spaced(last - first + 1, max(1, at_most)).numpy()


def cutoff_windows(
    panel: Panel, viewed: list[Viewed], horizons: list[Horizons], n_rows: list[int]
) -> Float[Tensor, "window length n_inputs"] | None:
    """A window for each cutoff of each series, of which only the first `n_rows` may be seen.

    Histories are as long as the input size, or the largest half, quarter, ... of it that begins with a complete row:
    few lengths, so that many windows begin together.
    """
    settings, n_modelled = panel.settings, len(panel.settings.modelled)
    lengths = [settings.input_size]
    while lengths[-1] // 2 >= FEWEST_BEFORE:
        lengths.append(lengths[-1] // 2)
    windows = []
    for one, ahead, last in zip(viewed, horizons, n_rows, strict=True):
        rows, known = panel.rows(one), panel.known(one.series)
        complete = _complete(rows, n_modelled).numpy()
        for place, scaler, features in zip(*ahead, strict=True):
            length = next((size for size in lengths if place + 1 >= size and complete[place + 1 - size]), None)
            steps = slice(place + 1, min(place + 1 + settings.horizon, last))
            future = scaler.rows(slice(steps.stop - steps.start)).transform(one.series.values[steps])
            if length is None or np.isnan(future).all():
                continue
            window = torch.full((settings.window_length, rows.shape[1]), float("nan"))
            window[settings.input_size - length : settings.input_size] = rows[place + 1 - length : place + 1]
            horizon = window[settings.input_size :]
            horizon[: len(future), :n_modelled] = torch.from_numpy(future)
            inputs = np.zeros((settings.horizon, known.shape[1] + features.shape[1]))
            inputs[: len(future), : known.shape[1]] = known[steps]
            inputs[:, known.shape[1] :] = features
            # Row s holds the known inputs of time s + 1; nothing comes after the last one.
            window[settings.input_size - 1 : -1, n_modelled:] = torch.from_numpy(inputs)
            window[-1, n_modelled:] = 0.0
            windows.append(window)
    if not windows:
        return None
    found = torch.stack(windows)
    if settings.support() is None:
        found[..., :n_modelled] = found[..., :n_modelled].clamp(-LARGEST_VALUE, LARGEST_VALUE)
    return found


def followed_windows(
    panel: Panel, viewed: list[Viewed], held_out: list[int]
) -> Float[Tensor, "window length n_inputs"] | None:
    """Rows as they are seen when a series is followed: windows side by side, whose last rows are those held out.

    A horizon of rows at the end of each window is held out; before them there are as many as the input size, or fewer.
    """
    settings, n_modelled, windows = panel.settings, len(panel.settings.modelled), []
    for one, n_held_out in zip(viewed, held_out, strict=True):
        if not n_held_out:
            continue
        rows = panel.rows(one)
        complete = _complete(rows, n_modelled)
        for end in range(len(rows), len(rows) - n_held_out + settings.horizon - 1, -settings.horizon):
            first = max(0, end - settings.window_length)
            begun = first + complete[first:end].nonzero().flatten()[:1]
            if len(begun) and end - int(begun) > 1:
                window = torch.full((settings.window_length, rows.shape[1]), float("nan"))
                window[settings.window_length - (end - int(begun)) :] = rows[int(begun) : end]
                windows.append(window)
    return torch.stack(windows) if windows else None


def join_windows(
    windows: Float[Tensor, "own length n_inputs"] | None, at_most: int
) -> Float[Tensor, "window length n_inputs"] | None:
    """The windows of all processes, evenly thinned: the same in all, and however the series are shared by them."""
    counts = processes.gather(0 if windows is None else len(windows))
    before, n_all = sum(counts[: processes.rank()]), sum(counts)
    if n_all > at_most:
        logger.info("%d of %d windows, evenly spaced, are used", at_most, n_all)
    own = None
    if windows is not None:
        places = evenly_spaced(n_all, at_most) - before
        own = windows[places[(places >= 0) & (places < len(windows))]]
    found = [part for part in processes.gather(own) if part is not None]
    return torch.cat(found) if found else None


def training_windows(
    panel: list[Float[Tensor, "_ n_inputs"]], n_targets: int, length: int, at_most: int
) -> Float[Tensor, "window length n_inputs"]:
    """All windows of the given length with stride 1, evenly thinned to `at_most`.

    A series that has none, because it is shorter or because nothing is complete where they would begin, gives one from
    its first complete row, filled up at the end by missing steps.
    """
    starts = [_starts(rows, n_targets, length) for rows in panel]
    numbers = torch.repeat_interleave(torch.arange(len(panel)), torch.tensor([len(found) for found in starts]))
    places = torch.stack((numbers, torch.cat(starts)), dim=1)
    counts = processes.gather((len(places), len(panel)))
    before, n_all = sum(n for n, _ in counts[: processes.rank()]), sum(n for n, _ in counts)
    if n_all == 0:
        raise TableError("there is nothing to learn from: no series has values after a row in which all are observed")
    if n_all > at_most:
        logger.info("%d of %d training windows, evenly spaced, are used", at_most, n_all)
        chosen = evenly_spaced(n_all, at_most) - before
        places = places[chosen[(chosen >= 0) & (chosen < len(places))]]
    missing = panel[0].new_zeros(length, panel[0].shape[1])
    missing[:, :n_targets] = float("nan")
    filled_up = [torch.cat((rows, missing)) for rows in panel]
    own = [filled_up[number][start : start + length] for number, start in places.tolist()]
    n_before = sum(n for _, n in counts[: processes.rank()])
    parts = processes.gather((torch.stack(own) if own else missing[None, :0], places[:, 0] + n_before))
    windows = torch.cat([found for found, owners in parts if len(owners)])
    owners = torch.cat([owners for _, owners in parts])
    complete = ~windows[..., :n_targets].isnan().flatten(1).any(dim=1)
    if int((~complete).sum()) > FEW_MISSING * len(windows):
        return windows
    kept = complete | ~torch.isin(owners, owners[complete])
    if not kept.all():
        logger.info("%d of %d training windows have missing values and are left out", int((~kept).sum()), len(windows))
    return windows[kept]


def validation_windows(
    panel: list[Float[Tensor, "_ n_inputs"]], held_out: list[int], n_targets: int, length: int, horizon: int
) -> Float[Tensor, "window length n_inputs"] | None:
    """The windows whose horizon lies within the last rows of each series, as many as were held out of training."""
    windows = []
    for rows, n_held_out in zip(panel, held_out, strict=True):
        last = len(rows) - length
        complete = _complete(rows, n_targets)
        for start in range(max(0, last - (n_held_out - horizon)), last + 1 if n_held_out else 0):
            window = rows[start : start + length]
            if complete[start] and not window[-horizon:, :n_targets].isnan().all():
                windows.append(window)
    return torch.stack(windows) if windows else None


def _starts(rows: Float[Tensor, "_ n_inputs"], n_targets: int, length: int) -> Int[Tensor, "start"]:
    """Complete rows with a whole window after them in which something is observed; else the first that has any."""
    seen = (~rows[:, :n_targets].isnan()).any(dim=1)
    n_seen_before = torch.cat((torch.zeros(1, dtype=torch.long), seen.cumsum(0)))
    starts = _complete(rows, n_targets).nonzero().flatten()
    ends = (starts + length).clamp(max=len(rows))
    starts = starts[n_seen_before[ends] > n_seen_before[starts + 1]]
    whole = starts[starts + length <= len(rows)]
    return whole if len(whole) else starts[:1]


def _complete(rows: Float[Tensor, "_ n_inputs"], n_targets: int) -> Bool[Tensor, "_"]:
    return ~rows[:, :n_targets].isnan().any(dim=1)
