"""From series to the rows that the model reads.

Row s holds the modelled values of time s and the known inputs of time s + 1, so that what is known of a time informs
its prediction. Known inputs mean the same everywhere, and are scaled by the statistics of all series together. Modelled
values are seen through the local view (`view/local.py`), which follows each series row by row and adds its features to
the known inputs; or they are scaled once for all, by the statistics of their series' training rows, then in units of a
typical one-step change, so that the net predicts numbers of the order of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smc_transformer.forecaster.calendar import calendar_features
from smc_transformer.forecaster.limits import check_for_statistics, scale
from smc_transformer.forecaster.pooling import pooled_largest, pooled_moments
from smc_transformer.forecaster.scaling import SHARE_OF_CONSTANT, Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name, Series, TableError
from smc_transformer.forecaster.view.bank import Bank
from smc_transformer.forecaster.view.bank_state import BankState
from smc_transformer.forecaster.view.local import ROWS_TO_FIT, Glance, LocalView, chosen_columns, trace
from smc_transformer.support import processes

FEWEST_ROWS = 3
"""Observed rows that a series needs for statistics of its own."""

ViewState: TypeAlias = Scaler | BankState
"""How a series is seen from where it is: by one map, or by a local view, which has a row for each modelled column."""


class Viewed(NamedTuple):
    """Rows of a series, how their values are scaled, and what is known of them ahead, as the model sees it."""

    series: Series
    scaler: Scaler
    known: Float[np.ndarray, "row known"]

    def rows(self, chosen: slice) -> "Viewed":
        """Some rows."""
        return Viewed(self.series.rows(chosen), self.scaler.rows(chosen), self.known[chosen])


class Horizons(NamedTuple):
    """What was said about the steps after rows of a series, before these were seen."""

    places: Int[np.ndarray, "cutoff"]  # of the rows in their series
    scalers: list[Scaler]  # of each, with a row for each step
    features: list[Float[np.ndarray, "step feature"]]  # of each, as the view gives them

    def before(self, place: int) -> "Horizons":
        """Those after earlier rows."""
        return self._chosen(self.places < place)

    def since(self, place: int) -> "Horizons":
        """Those after this row or a later one."""
        return self._chosen(self.places >= place)

    def _chosen(self, mask: Bool[np.ndarray, "cutoff"]) -> "Horizons":
        numbers = np.flatnonzero(mask).tolist()
        scalers, features = ([part[number] for number in numbers] for part in (self.scalers, self.features))
        return Horizons(self.places[mask], scalers, features)


_NOWHERE = Horizons(np.zeros(0, dtype=int), [], [])


@dataclass
class Panel:
    """What is known of a collection of series: how each is scaled."""

    settings: Settings
    known_scaler: Scaler  # of the inputs that are known ahead (without calendar features)
    units: Float[np.ndarray, "modelled"]  # typical one-step changes of the scaled modelled columns
    scalers: dict[Name, Scaler] = field(default_factory=dict)  # of the series of the fit; they include the units
    view: LocalView | None = None  # None: values are scaled once for all
    positive: tuple[bool, ...] = ()  # which targets have never been below 0 (of a local view only)
    widths: Float[np.ndarray, "horizon"] | None = None  # factors on the paths of each step (learning/step_widths.py)
    persistence: float = 0.0  # how much the steps of paths go together (learning/persistence.py)

    @classmethod
    def fit(cls, settings: Settings, training: list[Series]) -> "Panel":
        """Take all statistics from training rows, also from those of other processes."""
        processes.together(partial(_check_all, settings, training))
        known_scaler = Scaler.standard(*pooled_moments([series.known for series in training]))
        units = np.ones(len(settings.modelled))
        if settings.is_local:
            columns = [column for series in training for column in series.values.T if not np.isnan(column).all()]
            bank, counts = Bank(settings.seasons, settings.horizon), settings.support() is not None
            some = _some_of_all(columns)
            if not some:
                raise TableError(f"there is nothing to learn from: {list(settings.modelled)} are missing in all rows")
            view = LocalView.fit(bank, counts, some)
            rows = np.concatenate([series.values for series in training])
            own = (np.nan_to_num(rows[:, : len(settings.targets)]) >= 0).all(axis=0)
            positive = tuple(np.all(processes.gather(own), axis=0).tolist())
            return cls(settings, known_scaler, units, {}, view, positive)
        plain = processes.together(lambda: {series.name: _own_scaler(series, settings) for series in training})
        everywhere = chain(*processes.gather([scaler.spread for scaler in plain.values()]))
        zeros = _spread_of_zeros(list(everywhere), len(settings.modelled))
        plain = {name: scaler.with_spread(zeros) for name, scaler in plain.items()}
        if settings.support() is None:
            levels = [scale(series, series.values, settings.modelled, plain[series.name]) for series in training]
            units = _typical_changes(levels)
        scalers = {name: scaler.in_units(units) for name, scaler in plain.items()}
        return cls(settings, known_scaler, units, scalers)

    def known(
        self, series: Series, features: Float[np.ndarray, "row feature"] | None = None
    ) -> Float[np.ndarray, "row known"]:
        """The inputs that are known ahead, as the model sees them, without the features of a view.

        `features` are those of the calendar, where they are known already.
        """
        if features is None:
            features = calendar_features(series.times, self.settings.calendar)
        columns = scale(series, series.known, self.settings.future_inputs, self.known_scaler)
        return np.concatenate((columns, features), axis=1)

    def begin(
        self, given: Sequence[Series], cutoffs: Sequence[Int[np.ndarray, "_"]] | None = None
    ) -> tuple[list[Viewed], list[ViewState], list[Horizons]]:
        """See series from their first rows on; also the states after their last rows.

        `cutoffs` are rows of each series: what is said about the horizon after them is returned as well. A horizon has
        as many steps as the settings say.
        """
        if self.view is None:
            states: list[ViewState] = [self._scaler(series) for series in given]
            return self._scaled(given, states), states, []
        begun = [self.view.bank.begin(len(self.settings.modelled)) for _ in given]
        return self._look(given, begun, cutoffs)

    def go_on(self, given: Sequence[Series], states: Sequence[ViewState]) -> tuple[list[Viewed], list[ViewState]]:
        """See the next rows of series from where they are; the states given stay as they are."""
        if self.view is None:
            return self._scaled(given, states), list(states)
        viewed, after, _ = self._look(given, [state for state in states if isinstance(state, BankState)], None)
        return viewed, after

    def ahead(self, future: Sequence[Series], states: Sequence[ViewState]) -> list[Viewed]:
        """How steps ahead are seen from where their series are; `future` has their times and known inputs."""
        if self.view is None:
            return self._scaled(future, states)
        found, n_modelled = [], len(self.settings.modelled)
        banks = [state for state in states if isinstance(state, BankState)]
        n_steps = max(map(len, future))
        said = self.view.glance(BankState.cat(banks), n_steps)
        # Series that end together share an index of times.
        indices = {id(series.times): series.times for series in future}
        calendar = {key: calendar_features(times, self.settings.calendar) for key, times in indices.items()}
        for number, series in enumerate(future):
            rows = slice(number * n_modelled, (number + 1) * n_modelled)
            scaler, features = self._of_columns(Glance(*(part[rows] for part in said)))
            known = self.known(series, calendar[id(series.times)])
            known = np.concatenate((known, features[: len(series)]), axis=1)
            found.append(Viewed(series, scaler.rows(slice(len(series))), known))
        return found

    def rows(self, viewed: Viewed, *, ahead: bool = True) -> Float[Tensor, "row n_inputs"]:
        """The rows of the model: values beside the known inputs of the next time, or of the same if not `ahead`.

        The known inputs after the last row are not known here, and 0.
        """
        series, known = viewed.series, viewed.known
        values = scale(series, series.values, self.settings.modelled, viewed.scaler)
        if ahead:
            known = np.concatenate((known[1:], np.zeros((min(1, len(known)), known.shape[1]))))
        return torch.from_numpy(np.concatenate((values, known), axis=1)).float()

    def beginning(self, series: Series) -> Series:
        """The series from its first row in which everything is observed: the model starts from such a row."""
        complete = np.flatnonzero(~np.isnan(series.values).any(axis=1))
        if len(complete) == 0:
            raise TableError(
                f"series {series.name!r} has no row in which all of {list(self.settings.modelled)} are observed: "
                f"there is nothing to start from"
            )
        return series.rows(slice(int(complete[0]), None))

    def describe(self, states: Sequence[ViewState]) -> str | None:
        """What the local view makes of series in words: how much each kind of season counts; None without a view."""
        banks = [state for state in states if isinstance(state, BankState)]
        if self.view is None or not banks:
            return None
        shares: dict[str, float] = {}
        weights = pooled_moments([self.view.weights(BankState.cat(banks))]).mean
        for name, weight in zip(self.view.bank.names(), weights.tolist(), strict=True):
            shares[name] = shares.get(name, 0.0) + weight
        ordered = sorted(shares.items(), key=lambda item: -item[1])
        return "; ".join(f"{name}: {100 * share:.0f} %" for name, share in ordered if share >= 0.005)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, without the scalers of the series."""
        found: dict[str, Any] = {"known_scaler": self.known_scaler.to_dict(), "units": self.units.tolist()}
        if self.view is not None:
            found |= {"view": self.view.to_dict(), "positive": list(self.positive)}
        if self.widths is not None:
            found |= {"widths": self.widths.tolist(), "persistence": self.persistence}
        return found

    @classmethod
    def from_dict(cls, settings: Settings, stored: dict[str, Any]) -> "Panel":
        """The inverse of `to_dict`."""
        view = LocalView.from_dict(stored["view"]) if "view" in stored else None
        scaler, units = Scaler.from_dict(stored["known_scaler"]), np.array(stored["units"], float)
        widths = np.array(stored["widths"], float) if "widths" in stored else None
        positive, persistence = tuple(map(bool, stored.get("positive", ()))), float(stored.get("persistence", 0.0))
        return cls(settings, scaler, units, {}, view, positive, widths, persistence)

    def widths_of(self, n_steps: int) -> Float[np.ndarray, "step"]:
        """The factors of so many steps: beyond the horizon, that of its end."""
        if self.widths is None:
            return np.ones(n_steps)
        return self.widths[np.minimum(np.arange(n_steps), len(self.widths) - 1)]

    def _scaled(self, given: Sequence[Series], states: Sequence[ViewState]) -> list[Viewed]:
        scalers = [state for state in states if isinstance(state, Scaler)]
        return [Viewed(series, scaler, self.known(series)) for series, scaler in zip(given, scalers, strict=True)]

    def _scaler(self, series: Series) -> Scaler:
        """That of the fit, or for a series that was not in it that of these rows."""
        found = self.scalers.get(series.name)
        if found is not None:
            return found
        zeros = _spread_of_zeros([one.spread for one in self.scalers.values()], len(self.units)) / self.units
        return _own_scaler(series, self.settings).with_spread(zeros).in_units(self.units)

    def _look(
        self,
        given: Sequence[Series],
        states: Sequence[BankState],
        cutoffs: Sequence[Int[np.ndarray, "_"]] | None,
    ) -> tuple[list[Viewed], list[ViewState], list[Horizons]]:
        """All columns of all series take their rows together."""
        assert self.view is not None
        if not given:
            return [], [], []
        for series in given:
            check_for_statistics(series, series.values, self.settings.modelled)
        n_modelled, state, horizon = len(self.settings.modelled), BankState.cat(states), self.settings.horizon
        pairs = [
            (n_modelled * number + column, place)
            for number, places in enumerate(cutoffs or ())
            for place in places.tolist()
            for column in range(n_modelled)
        ]
        columns = [column for series in given for column in series.values.T]
        seen = trace(self.view, state, columns, np.array(pairs, dtype=int).reshape(-1, 2), horizon)
        viewed, after, horizons, done = [], [], [], 0
        for number, series in enumerate(given):
            rows, times = slice(n_modelled * number, n_modelled * (number + 1)), slice(len(series))
            scaler = self._map(seen.anchor[rows, times].T, seen.unit[rows, times].T)
            features = np.concatenate(list(seen.features[rows, times]), axis=1)
            viewed.append(Viewed(series, scaler, np.concatenate((self.known(series), features), axis=1)))
            after.append(state.take(rows))
            if cutoffs is not None:
                said = []
                for _ in cutoffs[number]:
                    said.append(self._of_columns(Glance(*(part[done : done + n_modelled] for part in seen.ahead))))
                    done += n_modelled
                horizons.append(Horizons(cutoffs[number], *map(list, zip(*said, strict=True))) if said else _NOWHERE)
        return viewed, list(after), horizons

    def _of_columns(self, said: Glance) -> tuple[Scaler, Float[np.ndarray, "step feature"]]:
        """The scaling and the features of steps ahead, from what is said about each column of a series."""
        spread = np.broadcast_to(said.unit, said.anchor.T.shape)
        return self._map(said.anchor.T, spread), np.concatenate(list(said.features), axis=1)

    def _map(self, anchor: Float[np.ndarray, "row column"], unit: Float[np.ndarray, "row column"]) -> Scaler:
        kinds = ("local",) * anchor.shape[1]
        if self.view is not None and self.view.counts:
            return Scaler(kinds, np.zeros(anchor.shape), np.ones(anchor.shape))
        return Scaler(kinds, anchor, np.ascontiguousarray(unit))


def _own_scaler(series: Series, settings: Settings) -> Scaler:
    n_observed = int((~np.isnan(series.values[:, : len(settings.targets)])).any(axis=1).sum())
    if n_observed < FEWEST_ROWS:
        raise TableError(
            f"series {series.name!r} is too short to use: it has {n_observed} observed rows, "
            f"and at least {FEWEST_ROWS} are needed"
        )
    check_for_statistics(series, series.values, settings.modelled)
    return Scaler.fit(series.values, settings.kinds(), constants=SHARE_OF_CONSTANT)


def _spread_of_zeros(found: list[Float[np.ndarray, "column"]], n_columns: int) -> Float[np.ndarray, "column"]:
    """What a series that is always 0, and has no size of its own, is divided by: a small share of what others are."""
    spreads = np.stack(found or [np.ones(n_columns)])
    known = [column[~np.isnan(column)] for column in spreads.T]
    return np.array([SHARE_OF_CONSTANT * (np.median(column) if len(column) else 1.0) for column in known])


def _check_all(settings: Settings, training: list[Series]) -> None:
    for series in training:
        check_for_statistics(series, series.known, settings.future_inputs)
        if settings.is_local:
            check_for_statistics(series, series.values, settings.modelled)


def _some_of_all(columns: list[Float[np.ndarray, "_"]]) -> list[Float[np.ndarray, "_"]]:
    """The columns that the constants of a view are taken from: the same, however they are shared by processes."""
    counts = processes.gather(len(columns))
    if len(counts) == 1:
        return columns
    before, n_all = sum(counts[: processes.rank()]), sum(counts)
    places = chosen_columns(n_all) - before
    own = [columns[place][-ROWS_TO_FIT:] for place in places if 0 <= place < len(columns)]
    return list(chain(*processes.gather(own)))


def _typical_changes(levels: list[Float[np.ndarray, "_ column"]]) -> Float[np.ndarray, "column"]:
    """The deviation of the one-step changes of each column, over all series (1 for a column that never changes)."""
    changes = pooled_moments([np.diff(series, axis=0) for series in levels]).deviation
    rounding = 10 * np.finfo(float).eps * pooled_largest(levels)
    return np.where(changes > rounding, changes, 1.0)
