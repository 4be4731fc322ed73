"""Windows: stretches of consecutive rows of a table, never across a gap in time."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

GAP = 1.5  # a time difference of more regular steps than that is a gap


def is_gap(times: Shaped[np.ndarray, "row"], step: np.timedelta64 | None) -> Bool[np.ndarray, "row"]:
    """Whether there is a gap just before each row; with `step` None nothing is a gap."""
    if step is None:
        return np.zeros(len(times), dtype=bool)
    seconds = np.diff(times, prepend=times[:1]) / np.timedelta64(1, "s")
    return seconds > GAP * (step / np.timedelta64(1, "s"))


def window_starts(
    times: Shaped[np.ndarray, "row"], length: int, step: np.timedelta64 | None
) -> Int[np.ndarray, "window"]:
    """The first rows of all windows of `length` rows without a gap inside."""
    starts = np.arange(max(len(times) - length + 1, 0))
    n_gaps = np.cumsum(is_gap(times, step))
    return starts[n_gaps[starts + length - 1] == n_gaps[starts]]


def cut_windows(
    values: Float[np.ndarray, "row column"], starts: Int[np.ndarray, "window"], length: int
) -> Float[Tensor, "window length column"]:
    """The windows that begin at the given rows, as 32-bit numbers."""
    rows = torch.from_numpy(values.astype(np.float32))
    if len(starts) == 0:
        return rows.new_empty(0, length, rows.shape[1])
    every = rows.unfold(0, length, 1).transpose(1, 2)
    return every[torch.from_numpy(starts)].contiguous()
