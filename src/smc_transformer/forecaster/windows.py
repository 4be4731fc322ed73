"""Windows of the series' rows for training and validation.

A window begins at a row in which everything is observed, as the model does; gaps inside it are missing values.
"""

import logging

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smc_transformer.forecaster.table import TableError
from smc_transformer.learning import evenly_spaced

logger = logging.getLogger(__name__)

FEW_MISSING = 0.1
"""Up to this share of windows with missing values are left out, but for series that would have none left: the others
train several times faster."""


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
    if len(places) == 0:
        raise TableError("there is nothing to learn from: no series has values after a row in which all are observed")
    if len(places) > at_most:
        logger.info("%d of %d training windows, evenly spaced, are used", at_most, len(places))
        places = places[evenly_spaced(len(places), at_most)]
    missing = panel[0].new_zeros(length, panel[0].shape[1])
    missing[:, :n_targets] = float("nan")
    filled_up = [torch.cat((rows, missing)) for rows in panel]
    windows = torch.stack([filled_up[number][start : start + length] for number, start in places.tolist()])
    complete = ~windows[..., :n_targets].isnan().flatten(1).any(dim=1)
    if int((~complete).sum()) > FEW_MISSING * len(windows):
        return windows
    owners = places[:, 0]
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
