"""Windows of a table, and their training, validation and test parts.

Windows are stretches of consecutive rows, never across a gap in time. They are split in two ways:

chronological   rows are cut in time, windows made inside each part, scaled by training rows: no leakage.
                Counties are series of their own: they are shuffled and cut.
paper           all windows are shuffled and cut, scaled by all rows: neighbouring windows share most of their
                values, so test data leak into training.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from smc_transformer.support.randomness import as_generator
from smct_paper.datasets.table import Table

SPLITS = ("chronological", "paper")
GAP = 1.5  # a time difference of more regular steps than that is a gap


class NoWindowsError(ValueError):
    """The data could be read, but are too few to be split and scaled."""


class Scaling(NamedTuple):
    """Mean and deviation of each column, by which values are scaled to mean 0 and deviation 1."""

    mean: Float[np.ndarray, "column"]
    deviation: Float[np.ndarray, "column"]

    def __call__(self, values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
        """The scaled values."""
        return (values - self.mean) / self.deviation


def fit_scaling(values: Float[np.ndarray, "row column"], columns: tuple[str, ...]) -> Scaling:
    """Means and population deviations of what is not missing; a constant column keeps its unit (deviation 1)."""
    empty = np.isnan(values).all(axis=0)
    if empty.any():
        raise NoWindowsError(f"column {columns[int(empty.argmax())]!r} has no value to scale by: all are missing")
    # Compared exactly: rounding makes the computed deviation of a constant column small, but not 0.
    constant = np.nanmax(values, axis=0) == np.nanmin(values, axis=0)
    mean = np.where(constant, np.nanmin(values, axis=0), np.nanmean(values, axis=0))
    return Scaling(mean, np.where(constant, 1.0, np.nanstd(values, axis=0)))


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


@dataclass(frozen=True)
class Parts:
    """Scaled windows of the three parts, and the mean and deviation of the columns (None: each series has its own)."""

    train: Float[Tensor, "train length column"]
    validation: Float[Tensor, "validation length column"]
    test: Float[Tensor, "test length column"]
    mean: Float[Tensor, "column"] | None
    deviation: Float[Tensor, "column"] | None


def cuts(n: int) -> tuple[int, int]:
    """Where the validation and the test part begin: after 70 % and 85 %."""
    return int(0.70 * n), int(0.85 * n)


def chronological_windows(table: Table, length: int) -> Parts:
    """Rows are cut in time. Windows whose first row lacks a value are left out: a model cannot start there."""
    n = len(table.times)
    first, second = cuts(n)
    scaling = fit_scaling(table.values[:first], table.columns)
    parts = []
    for rows in (slice(0, first), slice(first, second), slice(second, n)):
        values = scaling(table.values[rows])
        starts = window_starts(table.times[rows], length, table.step)
        starts = starts[~np.isnan(values[starts]).any(axis=1)]
        parts.append(cut_windows(values, starts, length))
    return _parts(parts, scaling)


def shuffled_windows(table: Table, length: int, seed: int) -> Parts:
    """All windows without a missing value are shuffled, then cut."""
    scaling = fit_scaling(table.values, table.columns)
    windows = cut_windows(scaling(table.values), window_starts(table.times, length, table.step), length)
    windows = windows[~windows.isnan().flatten(1).any(dim=1)]
    return _parts(_shuffle_and_cut(windows, seed), scaling)


def series_by_log(cumulative: Float[np.ndarray, "series length"], seed: int) -> Parts:
    """Series are shuffled and cut; log(1 + value) is scaled by all values of the training series."""
    parts = _shuffle_and_cut(torch.from_numpy(np.log1p(cumulative)), seed)
    scaling = fit_scaling(parts[0].reshape(-1, 1).numpy(), ("log(1 + value)",))
    scaled = [((part - scaling.mean[0]) / scaling.deviation[0]).float().unsqueeze(-1) for part in parts]
    return _parts(scaled, scaling)


def series_by_themselves(cumulative: Float[np.ndarray, "series length"], seed: int) -> Parts:
    """Each series is scaled by its own values, as in the paper; then they are shuffled and cut."""
    names = tuple(map(str, range(len(cumulative))))
    scaled = fit_scaling(cumulative.T, names)(cumulative.T).T
    return _parts(_shuffle_and_cut(torch.from_numpy(scaled).float().unsqueeze(-1), seed), None)


def _shuffle_and_cut(windows: Tensor, seed: int) -> list[Tensor]:
    windows = windows[torch.randperm(len(windows), generator=as_generator(seed))]
    first, second = cuts(len(windows))
    return [windows[:first], windows[first:second], windows[second:]]


def _parts(parts: list[Tensor], scaling: Scaling | None) -> Parts:
    for name, part in zip(("training", "validation", "test"), parts, strict=True):
        if len(part) == 0:
            raise NoWindowsError(f"the {name} part has no windows: too few rows, or gaps and missing values everywhere")
    mean, deviation = (None, None) if scaling is None else (torch.from_numpy(part).float() for part in scaling)
    return Parts(parts[0], parts[1], parts[2], mean, deviation)
