"""The local view of a column: a causal, exactly invertible map between its values and what the network models.

    y_t = anchor_t + unit_t * x_t

The anchor is a mixture of the forecasts of a bank of exponential smoothers (`bank.py`), each weighted by how well it
has forecast this series so far; the unit follows the recent size of the series and of its errors. Both are known before
y_t. So x is what simple forecasts leave unexplained, in units in which all series are alike: the network learns that,
and quantiles, densities (by the Jacobian 1 / unit) and paths go back to the table's units exactly.

A row that is missing teaches the view nothing: its anchor is then a forecast from the last observed row. A horizon is
nothing else than missing rows, so training windows, gaps and forecasts see the same thing.

Counts are modelled as they are (a distribution of whole numbers has no other units), with the same features beside
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from smc_transformer.forecaster.view.bank import Bank
from smc_transformer.forecaster.view.bank_state import BankState
from smc_transformer.kernels.structures import View as CompiledView
from smc_transformer.kernels.view import glance_columns, view_structure
from smc_transformer.support.chunks import chunk_size

POWER = 12.0
"""A candidate's weight is its error to the power -12: measured on rows before those that panels are tested on."""
PRIOR_ERRORS = 16.0
"""Errors of a series' own that weigh as much as the average over all series."""
PRIOR_NOISE = 4.0
"""The same for the typical error in units of the size."""
LEAST_NOISE = 0.05
"""Of the typical error of all series: the network is not told of quieter ones. The unit of a series that has never
changed by so much from one row to the next is smaller, so that it looks like one of these."""
ROWS_OF_QUIET = 16
"""Observed rows by which a series is known to be quieter than that."""
LEAST_UNIT, LEAST_UNIT_OF_COUNTS = 1e-5, 0.01
"""Of the typical error of a series that is as large as the largest value of its own: one that has been constant, or 0
for a long time, may still jump, and a value of 1e15 units is none (limits.py). One that has always been 0 has no size:
it has that of the middle one of all. Counts have no intervals in these units, but features, which would grow."""
SMALLEST = 1e-200
"""Of a unit: its inverse and the squares of values in it are numbers."""
NUMBERS_AT_ONCE = 2**23
"""Forecasts of candidates that are held at a time (64 MiB)."""
ROWS_TO_FIT, SERIES_TO_FIT = 600, 300
"""Last rows and evenly chosen series that the constants of a panel are taken from."""


def n_features(n_seasons: int, counts: bool) -> int:
    """How many features a view gives of a column with so many seasons."""
    return 4 + n_seasons + counts


def least_unit(counts: bool) -> float:
    """The smallest unit, as a share of the typical error of a series that is as large as its largest value."""
    return LEAST_UNIT_OF_COUNTS if counts else LEAST_UNIT


def chosen_columns(n_columns: int) -> Int[np.ndarray, "chosen"]:
    """Which of so many columns the constants of a panel are taken from."""
    return np.unique(np.linspace(0, n_columns - 1, min(n_columns, SERIES_TO_FIT)).round().astype(int))


class Glance(NamedTuple):
    """What a view says about rows ahead, before they are seen."""

    anchor: Float[np.ndarray, "row step"]
    unit: Float[np.ndarray, "row"]
    features: Float[np.ndarray, "row step feature"]


@dataclass(frozen=True)
class LocalView:
    """How the columns of a panel are seen.

    Args:
        bank: the candidates.
        counts: whether the values are counts, modelled as they are.
        prior: the average over series of log(error of a candidate / mean error of all candidates).
        noise: typical error in units of the typical size, over all series.
        floor: the smallest unit, for a series of middle size.
    """

    bank: Bank
    counts: bool = False
    prior: Float[np.ndarray, "candidate"] = field(default_factory=lambda: np.zeros(1))
    noise: float = 0.2
    floor: float = 1e-6

    @classmethod
    def fit(cls, bank: Bank, counts: bool, columns: Sequence[Float[np.ndarray, "_"]]) -> "LocalView":
        """Take the constants of a panel from the training rows of its columns."""
        values = _right_aligned([columns[number][-ROWS_TO_FIT:] for number in chosen_columns(len(columns))])
        state = bank.begin(len(values))
        for y in values.T:
            bank.observe(state, y)
        errors = bank.mean_errors(state)
        judged = (state.n_errors > 0) & (errors.mean(axis=1) > 0)
        sizes = state.size[state.n_rows > 0]
        size = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 1.0
        if not judged.any():
            return cls(bank, counts, np.zeros(bank.n_candidates), 0.2, least_unit(counts) * size)
        prior = _relative(errors[judged]).mean(axis=0)
        weights = _softmax(-POWER * _relative(errors[judged]))
        with np.errstate(divide="ignore"):
            shares = (weights * errors[judged]).sum(axis=1) / state.size[judged]
        finite = shares[np.isfinite(shares)]
        noise = float(np.median(finite)) if len(finite) else 0.2
        return cls(bank, counts, prior, max(noise, 1e-6), least_unit(counts) * max(noise, 1e-6) * size)

    @property
    def n_features(self) -> int:
        """Features of a column: known before its value, given to the network as inputs that are known ahead."""
        return n_features(len(self.bank.seasons), self.counts)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "compiled"}  # pointers of this process

    @cached_property
    def compiled(self) -> CompiledView:
        """The constants as C sees them."""
        numbers = {
            "counts": int(self.counts),
            "ready_after": ROWS_OF_QUIET,
            "noise": self.noise,
            "floor": self.floor,
            "power": POWER,
            "prior_errors": PRIOR_ERRORS,
            "prior_noise": PRIOR_NOISE,
            "least_noise": LEAST_NOISE,
            "least_unit": least_unit(self.counts),
            "smallest": SMALLEST,
        }
        return view_structure(numbers, np.broadcast_to(self.prior, self.bank.n_candidates))

    def glance(self, state: BankState, n_steps: int, rows: Int[np.ndarray, "row"] | None = None) -> Glance:
        """What is said about the next rows, from where the series are: all of the state, or some `rows` of it."""
        compiled = self.bank.compiled(state) if type(self) is LocalView else None  # a view of a user's own: as it says
        if compiled is not None:
            return Glance(*glance_columns(compiled, self.compiled, rows, n_steps, self.n_features))
        if rows is not None:
            return self.glance(state.take(rows), n_steps)
        at_once = chunk_size(NUMBERS_AT_ONCE, n_steps * self.bank.n_candidates)
        if len(state) > at_once:
            parts = [
                self.glance(state.take(slice(start, start + at_once)), n_steps)
                for start in range(0, len(state), at_once)
            ]
            return Glance(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        candidates = self.bank.ahead(state, n_steps)
        weights = self.weights(state)
        anchor = np.einsum("rsc,rc->rs", candidates, weights)
        spread = np.sqrt(np.einsum("rsc,rc->rs", np.square(candidates - anchor[..., None]), weights))
        noise, unit = self._noise(state, weights)
        steps = np.arange(1, n_steps + 1)
        # How many steps ahead of the last observed row: what is seen beyond the horizon is seen as its end.
        ahead = np.minimum(state.silent[:, None] + steps, self.bank.horizon)
        last = np.arcsinh((state.last[:, None] - anchor) / unit[:, None])
        seasonal = np.arcsinh((self.bank.seasonal(state, n_steps) - anchor[..., None]) / unit[:, None, None])
        relative = np.log(noise / np.maximum(state.size, self._floor(state))) - np.log(self.noise)
        relative = np.where(state.largest > 0, relative, np.log(LEAST_NOISE))  # always 0: as quiet as can be told
        quiet = np.broadcast_to(relative[:, None], anchor.shape)
        features = [
            2 * np.log(ahead) / np.log(self.bank.horizon + 1),
            last,
            np.arcsinh(spread / unit[:, None]),
            np.clip(quiet, -3.0, 3.0),
            *np.moveaxis(np.nan_to_num(seasonal), -1, 0),
        ]
        if self.counts:
            features.append(np.log(np.maximum(anchor, 0.0) + 0.02))
        return Glance(anchor, unit, np.stack(features, axis=-1))

    def weights(self, state: BankState) -> Float[np.ndarray, "row candidate"]:
        """What each candidate counts for in each column: by its errors there, and in all series while there are few."""
        n = state.n_errors[:, None]
        own = np.where(n > 0, _relative(self.bank.mean_errors(state)), 0.0)
        return _softmax(-POWER * (n * own + PRIOR_ERRORS * self.prior) / (n + PRIOR_ERRORS))

    def _noise(
        self, state: BankState, weights: Float[np.ndarray, "row candidate"]
    ) -> tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]:
        """The typical error of a column, and its unit: half of that and half of what is typical for its size."""
        n = state.n_errors
        own = (weights * self.bank.mean_errors(state)).sum(axis=1)
        usual = self.noise * state.size
        error = np.maximum((n * own + PRIOR_NOISE * usual) / (n + PRIOR_NOISE), LEAST_NOISE * usual)
        floor = self._floor(state)
        error = np.maximum(error, floor)
        quiet = np.minimum(state.jump / np.maximum(LEAST_NOISE * usual, SMALLEST), 1.0)
        shrunk = np.where((state.n_observed >= ROWS_OF_QUIET) & (usual > 0), quiet, 1.0)
        return error, np.maximum(0.5 * (error + usual) * shrunk, floor)

    def _floor(self, state: BankState) -> Float[np.ndarray, "row"]:
        """The smallest unit, by the largest value that a series has had."""
        own = np.where(state.largest > 0, least_unit(self.counts) * self.noise * state.largest, np.inf)
        return np.maximum(np.minimum(own, self.floor), SMALLEST)

    def check(self) -> None:
        """That constants which were read from a file can be those of a view; else a `ValueError`."""
        if not np.isfinite(self.prior).all():
            raise ValueError("the prior of a view must hold finite numbers")
        for name, value in (("noise", self.noise), ("floor", self.floor)):
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"the {name} of a view must be a positive number, got {value}")

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "seasons": list(self.bank.seasons),
            "horizon": self.bank.horizon,
            "counts": self.counts,
            "prior": self.prior.tolist(),
            "noise": self.noise,
            "floor": self.floor,
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "LocalView":
        """The inverse of `to_dict`."""
        bank = Bank(tuple(int(season) for season in stored["seasons"]), int(stored["horizon"]))
        prior = np.array(stored["prior"], float)
        if prior.shape != (bank.n_candidates,):
            raise ValueError(f"a view of {bank.n_candidates} candidates has as many priors, got {prior.shape}")
        return cls(bank, bool(stored["counts"]), prior, float(stored["noise"]), float(stored["floor"]))


class Trace(NamedTuple):
    """The view of every row before it was seen, and of the horizons after some of them."""

    anchor: Float[np.ndarray, "row time"]
    unit: Float[np.ndarray, "row time"]
    features: Float[np.ndarray, "row time feature"]
    ahead: Glance  # a row for each cutoff


def trace(
    view: LocalView,
    state: BankState,
    columns: Sequence[Float[np.ndarray, "_"]],
    cutoffs: Int[np.ndarray, "cutoff 2"] | None = None,
    n_steps: int = 0,
) -> Trace:
    """Follow columns over rows of the table, in place, all of them together.

    A column that has not begun has no anchor before its first value: it is its own anchor then, so that x is 0.

    Args:
        view: the view.
        state: where the columns are.
        columns: what comes, of unequal length.
        cutoffs: a column and a time each, after which so many steps ahead are looked at.
        n_steps: how many.
    """
    lengths = np.array([len(column) for column in columns])
    n_rows, n_times = len(columns), int(lengths.max(initial=0))
    values = np.full((n_rows, n_times), np.nan)
    for row, column in enumerate(columns):
        values[row, : len(column)] = column
    anchor, unit = np.zeros(values.shape), np.ones(values.shape)
    features = np.zeros((n_rows, n_times, view.n_features))
    pairs = np.zeros((0, 2), dtype=int) if cutoffs is None else cutoffs
    ahead = Glance(
        np.zeros((len(pairs), n_steps)), np.ones(len(pairs)), np.zeros((len(pairs), n_steps, view.n_features))
    )
    order = np.argsort(pairs[:, 1], kind="stable")
    ends = np.searchsorted(pairs[order, 1], np.arange(n_times + 1))
    for time in range(n_times):
        going = np.flatnonzero(lengths > time)
        own = state if len(going) == n_rows else state.take(going)
        y, begun = values[going, time], own.n_rows > 0
        if begun.any():
            said = view.glance(own if begun.all() else own.take(begun), 1)
            rows = going[begun]
            anchor[rows, time], unit[rows, time], features[rows, time] = (
                said.anchor[:, 0],
                said.unit,
                said.features[:, 0],
            )
        view.bank.observe(own, y)
        first = ~begun & ~np.isnan(y)
        if first.any():
            anchor[going[first], time], unit[going[first], time] = y[first], view.glance(own.take(first), 1).unit
        if own is not state:
            state.put(going, own)
        places = order[ends[time] : ends[time + 1]]
        if len(places):
            said = view.glance(state.take(pairs[places, 0]), n_steps)
            for array, part in zip(ahead, said, strict=True):
                array[places] = part
    return Trace(anchor, unit, features, ahead)


def _right_aligned(columns: Sequence[Float[np.ndarray, "_"]]) -> Float[np.ndarray, "row time"]:
    """Columns of unequal length in one array, NaN before they begin."""
    values = np.full((len(columns), max(map(len, columns))), np.nan)
    for row, column in enumerate(columns):
        values[row, values.shape[1] - len(column) :] = column
    return values


def _relative(errors: Float[np.ndarray, "row candidate"]) -> Float[np.ndarray, "row candidate"]:
    """The logarithm of each candidate's error over the mean of all; 0 where there is no error at all."""
    mean = errors.mean(axis=1, keepdims=True)
    least = 1e-6 * np.where(mean > 0, mean, 1.0)  # a candidate that has been exact so far may still be wrong
    return np.where(mean > 0, np.log(np.maximum(errors, least) / np.where(mean > 0, mean, 1.0)), 0.0)


def _softmax(logits: Float[np.ndarray, "row candidate"]) -> Float[np.ndarray, "row candidate"]:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
