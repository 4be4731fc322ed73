"""What is known of followed series beside their particles, column by column, so that many are updated at once.

A `Roster` is a mapping from names to `Followed`, as a dictionary would be, but views, runs and last rows of all series
lie in common arrays, which grow by a share of themselves. It is for series that are seen through a local view.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from smc_transformer.forecaster.panel import ViewState
from smc_transformer.forecaster.table import Name
from smc_transformer.forecaster.view.bank import Bank
from smc_transformer.forecaster.view.bank_state import BankState
from smc_transformer.forecaster.view.local import Glance, LocalView
from smc_transformer.kernels.structures import Bank as CompiledBank

GROWTH = 0.5
"""By which share of themselves the arrays grow, at least."""
VACANT = 0.5
"""Share of the arrays beyond which vacant places are given back."""


class Followed(NamedTuple):
    """What is known of a followed series beside its particles."""

    last_time: Any
    view: ViewState  # how it is seen from there
    runs: tuple[int, ...]  # of each modelled column, how many of its last values were outside what is believed
    recent: Float[np.ndarray, "row modelled"]  # its last rows, to be drawn before forecasts


class Roster(MutableMapping[Name, Followed]):
    """Followed series by name.

    Args:
        series: those to begin with, at least one.
        n_kept: how many last rows of each are kept.
        key_of: the key of a series' random stream.
    """

    def __init__(self, series: Mapping[Name, Followed], n_kept: int, key_of: Callable[[Name], int]) -> None:
        first = next(iter(series.values()))
        assert isinstance(first.view, BankState)
        self.places: dict[Name, int] = {}
        self._vacant: list[int] = []  # places of series that were taken off
        self.last_times: list[Any] = []
        self.stream_keys = np.zeros(0, dtype=np.int64)  # of the random streams
        self.runs = np.zeros((0, len(first.view)), dtype=np.int64)
        self._key_of, self._n_columns = key_of, len(first.view)
        # The last rows are a ring: that of number n, counted from the first kept, is at place n % n_kept.
        self._recent = np.zeros((0, n_kept, len(first.view)))
        self._n_recent = np.zeros(0, dtype=np.int64)
        self._views = first.view.take(slice(0, 0))
        self._make_room(len(series))
        self.update(series)

    def glance(self, view: LocalView, places: Int[np.ndarray, "series"]) -> Glance:
        """What a view says about the next rows of series, a row for each column of each."""
        return view.glance(self._views, 1, self._rows(places))

    def observe(
        self, bank: Bank, places: Int[np.ndarray, "series"], values: Float[np.ndarray, "series column"]
    ) -> None:
        """Let the views of series, none of them twice, take these values; NaN is missing."""
        bank.observe(self._views, values.reshape(-1), self._rows(places))

    def columns(self, bank: Bank, place: int) -> tuple[CompiledBank | None, Int[np.ndarray, "column"]]:
        """The views of all series as C sees them, if it does, and which rows are those of one series."""
        return bank.compiled(self._views), self._rows(np.array([place]))

    def go_on(
        self,
        places: Int[np.ndarray, "series"],
        times: Sequence[Any],
        runs: Int[np.ndarray, "series column"],
        values: Float[np.ndarray, "series column"],
    ) -> None:
        """Take what else is known of series after one more row of each, at these times and with these values."""
        self.runs[places] = runs
        self._recent[places, self._n_recent[places] % self._recent.shape[1]] = values
        self._n_recent[places] += 1
        for place, time in zip(places.tolist(), times, strict=True):
            self.last_times[place] = time

    def go_on_alone(self, place: int, time: Any, values: Float[np.ndarray, "column"]) -> None:
        """The same for a row of one series, all of whose values are believed."""
        self.runs[place] = 0
        n_rows = int(self._n_recent[place])
        self._recent[place, n_rows % self._recent.shape[1]] = values
        self._n_recent[place] = n_rows + 1
        self.last_times[place] = time

    def __getitem__(self, name: Name) -> Followed:
        place = self.places[name]
        n_kept, n_rows = self._recent.shape[1], int(self._n_recent[place])
        order = np.arange(max(0, n_rows - n_kept), n_rows) % n_kept
        view = self._views.take(self._rows(np.array([place])))
        return Followed(self.last_times[place], view, tuple(self.runs[place].tolist()), self._recent[place, order])

    def __setitem__(self, name: Name, followed: Followed) -> None:
        assert isinstance(followed.view, BankState)
        place = self.places.get(name)
        if place is None:
            if not self._vacant:
                self._vacant.append(len(self.last_times))
                self.last_times.append(None)
                self._make_room(len(self.last_times))
            place = self._vacant.pop()
            self.places[name], self.stream_keys[place] = place, self._key_of(name)
        self.last_times[place] = followed.last_time
        self._views.put(self._rows(np.array([place])), followed.view)
        self.runs[place] = followed.runs
        rows = followed.recent[-self._recent.shape[1] :]
        self._recent[place, : len(rows)], self._n_recent[place] = rows, len(rows)

    def __delitem__(self, name: Name) -> None:
        place = self.places.pop(name)
        self.last_times[place] = None
        self._vacant.append(place)
        if len(self._vacant) > VACANT * len(self.runs):
            self._close_up()

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[Name]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def _rows(self, places: Int[np.ndarray, "series"]) -> Int[np.ndarray, "row"]:
        """Where the columns of series are among the views."""
        if self._n_columns == 1:
            return places
        return (places[:, None] * self._n_columns + np.arange(self._n_columns)).reshape(-1)

    def _close_up(self) -> None:
        """Give back the vacant places."""
        held = np.array(list(self.places.values()), dtype=np.int64)
        self._views = self._views.take(self._rows(held))
        self.stream_keys, self.runs = self.stream_keys[held], self.runs[held]
        self._recent, self._n_recent = self._recent[held], self._n_recent[held]
        self.last_times, self._vacant = [self.last_times[place] for place in held.tolist()], []
        self.places = {name: place for place, name in enumerate(self.places)}

    def _make_room(self, n_series: int) -> None:
        held = len(self.runs)
        if n_series <= held:
            return
        more = max(n_series - held, int(GROWTH * held))

        def longer(array: np.ndarray, n_more: int = more) -> np.ndarray:
            return np.concatenate((array, np.zeros((n_more, *array.shape[1:]), dtype=array.dtype)))

        self.stream_keys, self.runs = longer(self.stream_keys), longer(self.runs)
        self._recent, self._n_recent = longer(self._recent), longer(self._n_recent)
        arrays = {name: longer(array, more * self._n_columns) for name, array in self._views.arrays().items()}
        self._views = BankState(**arrays)
