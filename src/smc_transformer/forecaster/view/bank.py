"""A bank of exponential smoothers: what simple, causal forecasts say about each column of each series.

A candidate is a seasonal profile (none, additive or multiplicative, of one season, learned quickly or slowly) with a
smoothed level, and maybe a damped trend, on top of it:

    forecast of step h = (level + (phi + ... + phi^h) trend)  [+ or *]  profile entry of that step

All candidates of all columns take their steps together. Each is judged by its own free-running forecasts: it starts
one every few rows, lets it run over the horizon, and averages its absolute errors, old ones counting less. A profile
entry is touched once a season, so for steps within a season what is known ahead is what will be used. A missing value
teaches nothing, and time goes on. The first visits count more, as running means, so that short series are served too.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import gcd
from operator import is_

import numpy as np
from jaxtyping import Bool, Float, Int

from smc_transformer.forecaster.view.bank_state import BankState
from smc_transformer.kernels.choice import in_c
from smc_transformer.kernels.structures import Bank as CompiledBank
from smc_transformer.kernels.view import about_view, bank_of_columns, bank_structure, observe_columns

LEVEL_RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
TRENDS = ((0.0, 0.0), (0.1, 0.9), (0.1, 0.97))  # rate of the trend, and its damping phi
PROFILE_RATES = (0.05, 0.3)
PROFILE_LEVEL_RATE, PROFILE_LEVEL_SEASONS = 0.2, 2.0
"""Rate of the level that profiles are learned against, and, divided by the length of the season, its largest value: a
level that follows the season itself would hide it. All candidates of a profile share the level."""
SIZE_RATE = 0.1
"""Rate of the typical size |y|."""
ORIGINS = 4
"""Forecasts of each candidate that are running at a time, evenly apart, by which it is judged."""
MEMORY_HORIZONS, MEMORY_SEASONS = 4.0, 3.0
"""How long errors are remembered."""
ROWS_BEFORE_JUDGING = 2
MOST_ROWS, LARGEST_NUMBER = 2**53, 1e120
"""Of a state that was saved: values of tables, and sums of their errors, are far below it, and squares are numbers."""
SMALLEST_FACTOR, LARGEST_FACTOR = 0.05, 20.0
"""Of a multiplicative profile."""


@dataclass(frozen=True)
class Bank:
    """The candidates for given seasons, and how they are judged for a horizon.

    Args:
        seasons: lengths in rows, each of at least 2.
        horizon: steps of the forecasts that candidates are judged by.
    """

    seasons: tuple[int, ...]
    horizon: int

    @cached_property
    def profile_kinds(self) -> list[tuple[int, bool, float]]:
        """Of each profile: which season, whether it multiplies, and its rate."""
        return list(product(range(len(self.seasons)), (False, True), PROFILE_RATES))

    @cached_property
    def _lengths(self) -> Int[np.ndarray, "profile"]:
        return np.array([self.seasons[season] for season, _, _ in self.profile_kinds], dtype=int)

    @cached_property
    def _offsets(self) -> Int[np.ndarray, "profile"]:
        """Where the entries of each profile begin."""
        return np.concatenate(([0], np.cumsum(self._lengths)))[:-1].astype(int)

    @cached_property
    def _season_offsets(self) -> Int[np.ndarray, "season"]:
        return np.concatenate(([0], np.cumsum(self.seasons)))[:-1].astype(int)

    @cached_property
    def _of_profile(self) -> tuple[Int[np.ndarray, "profile"], Bool[np.ndarray, "profile"], Float[np.ndarray, "_"]]:
        kinds = self.profile_kinds
        return (
            np.array([season for season, _, _ in kinds], dtype=int),
            np.array([multiplies for _, multiplies, _ in kinds], dtype=bool),
            np.array([rate for _, _, rate in kinds], dtype=float),
        )

    @cached_property
    def _rates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Level rate, trend rate and damping of each smoother; each profile, and none, has all of them."""
        smoothers = list(product(LEVEL_RATES, TRENDS))
        level = np.array([rate for rate, _ in smoothers])
        trend, damping = (np.array([kind[place] for _, kind in smoothers]) for place in (0, 1))
        return level, trend, damping

    @property
    def n_smoothers(self) -> int:
        """Smoothers for each profile."""
        return len(LEVEL_RATES) * len(TRENDS)

    @property
    def n_candidates(self) -> int:
        """Candidates: no profile first, then one profile after the other, each with all smoothers."""
        return (1 + len(self.profile_kinds)) * self.n_smoothers

    def names(self) -> list[str]:
        """The profile of each candidate in words."""
        words = ["no season"] + [
            f"season {self.seasons[season]}, {'multiplicative' if multiplies else 'additive'}"
            for season, multiplies, _ in self.profile_kinds
        ]
        return [word for word in words for _ in range(self.n_smoothers)]

    def begin(self, n_rows: int) -> BankState:
        """The state of so many columns before anything was seen."""
        n_places, n_entries = sum(self.seasons), int(self._lengths.sum())
        _, multiplies, _ = self._of_profile
        entries = np.repeat(multiplies.astype(float), self._lengths)
        shape = (n_rows, self.n_candidates)
        return BankState(
            n_rows=np.zeros(n_rows, dtype=np.int64),
            n_observed=np.zeros(n_rows, dtype=np.int64),
            silent=np.zeros(n_rows, dtype=np.int64),
            last=np.zeros(n_rows),
            size=np.zeros(n_rows),
            largest=np.zeros(n_rows),
            jump=np.zeros(n_rows),
            profiles=np.broadcast_to(entries, (n_rows, n_entries)).copy(),
            latest=np.full((n_rows, n_places), np.nan),
            visits=np.zeros((n_rows, n_places), dtype=np.int64),
            reference=np.zeros((n_rows, len(self.profile_kinds))),
            level=np.zeros(shape),
            trend=np.zeros(shape),
            origin_level=np.full((n_rows, ORIGINS, self.n_candidates), np.nan),
            origin_trend=np.zeros((n_rows, ORIGINS, self.n_candidates)),
            errors=np.zeros(shape),
            n_errors=np.zeros(n_rows),
        )

    def check(self, state: BankState, n_rows: int) -> None:
        """That a state which was read from a file can be one of so many columns; else a `ValueError`."""
        for name, expected in self.begin(n_rows).arrays().items():
            array = getattr(state, name)
            if array.shape != expected.shape or array.dtype != expected.dtype:
                raise ValueError(
                    f"{name} of the view must be {expected.dtype} of shape {expected.shape}, "
                    f"got {array.dtype} of shape {array.shape}"
                )
            if array.dtype == np.int64 and ((array < 0) | (array > MOST_ROWS)).any():
                raise ValueError(f"{name} of the view must lie between 0 and {MOST_ROWS}")
            allowed = np.isfinite(array) | (np.isnan(array) & (name in ("latest", "origin_level", "origin_trend")))
            allowed |= np.isposinf(array) & (name in ("largest", "jump"))
            if not allowed.all():
                raise ValueError(f"{name} of the view holds NaN or infinite numbers")
            if (np.abs(array[np.isfinite(array)]) > LARGEST_NUMBER).any():
                raise ValueError(f"{name} of the view holds numbers beyond {LARGEST_NUMBER:g}")
        if any((getattr(state, name) < 0).any() for name in ("size", "largest", "jump", "errors", "n_errors")):
            raise ValueError("sizes and errors of the view must be at least 0")

    def ahead(self, state: BankState, n_steps: int) -> Float[np.ndarray, "row step candidate"]:
        """What each candidate says about the next steps."""
        sums = self._damped(n_steps)
        base = self._split(state.level)[:, None] + sums[None, :, None] * self._split(state.trend)[:, None]
        return self._with_profiles(base, self.profile_entries(state, n_steps))

    @lru_cache(64)  # noqa: B019  (a bank is small, and there are few)
    def _damped(self, n_steps: int) -> Float[np.ndarray, "step smoother"]:
        """The sums phi + ... + phi^h."""
        _, _, damping = self._rates
        return np.stack([np.power.outer(damping, np.arange(1, h + 1)).sum(axis=-1) for h in range(1, n_steps + 1)])

    def seasonal(self, state: BankState, n_steps: int) -> Float[np.ndarray, "row step season"]:
        """The last values seen one season, or several, before the next steps; NaN where there are none."""
        return state.latest[np.arange(len(state))[:, None, None], self._places(state, np.arange(n_steps))]

    def mean_errors(self, state: BankState) -> Float[np.ndarray, "row candidate"]:
        """The mean absolute error of each candidate over the horizon; 0 before there is any."""
        return state.errors / np.maximum(state.n_errors, 1e-12)[:, None]

    def compiled(self, state: BankState) -> CompiledBank | None:
        """The state as C sees it; None where numpy has to do the work."""
        if not in_c([f"the view in numpy: {reason}" for reason in about_view()]):
            return None
        arrays = state.arrays()
        known: tuple[Bank, list[np.ndarray], CompiledBank] | None = state.compiled
        if known is not None and known[0] is self and all(map(is_, known[1], arrays.values())):
            return known[2]
        named = {"profile_entries" if name == "profiles" else name: array for name, array in arrays.items()}
        found = bank_of_columns(_structure(self), named, len(state))
        state.compiled = (self, list(arrays.values()), found)
        return found

    def observe(
        self, state: BankState, y: Float[np.ndarray, "row"], rows: Int[np.ndarray, "row"] | None = None
    ) -> None:
        """Let columns take their next value, in place; NaN is missing. Columns begin with their first value.

        All columns, or with `rows` some of them, none twice.
        """
        compiled = self.compiled(state)
        if compiled is not None:
            observe_columns(compiled, rows, y)
            return
        if rows is not None:
            own = state.take(rows)
            self.observe(own, y)
            state.put(rows, own)
            return
        seen = ~np.isnan(y)
        begun = (state.n_rows > 0) | seen
        first = begun & (state.n_rows == 0)
        going = np.flatnonzero(begun)
        if len(going) == 0:
            return
        whole = len(going) == len(state)
        own = state if whole else state.take(going)
        self._observe(own, y[going], seen[going], first[going])
        if not whole:
            state.put(going, own)

    def _observe(
        self, state: BankState, y: Float[np.ndarray, "row"], seen: Bool[np.ndarray, "row"], first: Bool[np.ndarray, "_"]
    ) -> None:
        value = np.where(seen, y, 0.0)[:, None]
        learns = (seen & ~first)[:, None]
        now = self._places(state, np.zeros(1, dtype=int))[:, 0]  # (row, season)
        entries = self.profile_entries(state, 1)[:, 0]  # (row, profile)
        self._judge(state, value, seen & ~first, entries)
        self._smooth(state, value, learns, entries)
        self._learn_profiles(state, value, learns, now)
        for array in (state.level, state.reference):
            array[first] = value[first]
        state.jump = np.maximum(state.jump, np.where(seen & ~first, np.abs(value[:, 0] - state.last), 0.0))
        state.last = np.where(seen, value[:, 0], state.last)
        state.largest = np.maximum(state.largest, np.abs(value[:, 0]))  # of a missing value, 0
        state.n_observed = state.n_observed + seen
        gain = np.maximum(SIZE_RATE, 1 / np.maximum(state.n_observed, 1))
        state.size = np.where(seen, state.size + gain * (np.abs(value[:, 0]) - state.size), state.size)
        if self.seasons:
            here = (np.arange(len(state))[:, None], now)
            state.latest[here] = np.where(seen[:, None], value, state.latest[here])
            state.visits[here] += seen[:, None]
        state.silent = np.where(seen, 0, state.silent + 1)
        state.n_rows = state.n_rows + 1
        self._start_forecasts(state)

    def _smooth(
        self,
        state: BankState,
        value: Float[np.ndarray, "row 1"],
        learns: Bool[np.ndarray, "row 1"],
        entries: Float[np.ndarray, "row profile"],
    ) -> None:
        """Level and trend of each candidate take the value, or go on without it."""
        level_rate, trend_rate, damping = self._rates
        level, trend = self._split(state.level), self._split(state.trend)
        moved = level + damping * trend
        target = self._without_profiles(value, entries)[..., None]
        gain = np.maximum(level_rate, 1 / (state.n_observed + 1.0)[:, None, None])
        error = np.where(learns[..., None], target - moved, 0.0)
        state.level = (moved + gain * error).reshape(len(state), -1)
        state.trend = (damping * trend + gain * trend_rate * error).reshape(len(state), -1)

    def _learn_profiles(
        self,
        state: BankState,
        value: Float[np.ndarray, "row 1"],
        learns: Bool[np.ndarray, "row 1"],
        now: Int[np.ndarray, "row season"],
    ) -> None:
        if not self.seasons:
            return
        season, multiplies, rate = self._of_profile
        places = self._offsets + (state.n_rows[:, None] % self._lengths)
        entry = self.profile_entries(state, 1)[:, 0]
        visits = state.visits[np.arange(len(state))[:, None], now[:, season]]
        level = state.reference
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(level != 0, value / level, 1.0)  # what the entry would have to be
        error = np.where(multiplies, np.clip(ratio - entry, -1.0, 1.0), value - level - entry)
        error = np.where(learns, error, 0.0)
        level_rate = np.minimum(PROFILE_LEVEL_RATE, PROFILE_LEVEL_SEASONS / self._lengths)
        gain = np.maximum(level_rate, 1 / (state.n_observed + 1.0)[:, None])
        entry_gain = np.maximum(rate, 1 / (visits + 1.5)) * (1 - gain / 2)
        learned = entry + entry_gain * error
        learned = np.where(multiplies, np.clip(learned, SMALLEST_FACTOR, LARGEST_FACTOR), learned)
        state.profiles[np.arange(len(state))[:, None], places] = learned
        target = self._without_profiles(value, entry)[:, 1:]
        state.reference = np.where(learns, level + gain * (target - level), level)

    def _judge(
        self,
        state: BankState,
        value: Float[np.ndarray, "row 1"],
        judged: Bool[np.ndarray, "row"],
        entries: Float[np.ndarray, "row profile"],
    ) -> None:
        """The errors of the running forecasts of this row; with a long horizon only every few rows."""
        due = np.flatnonzero(judged & (state.n_rows % self.judged_every == 0))
        if len(due) == 0:
            return
        if len(due) < len(state):
            own = state.take(due)
            self._judge(own, value[due], judged[due], entries[due])
            state.errors[due], state.n_errors[due] = own.errors, own.n_errors
            return
        _, _, damping = self._rates
        age = self._ages(state)  # steps ahead that each running forecast is at now
        sums = damping * (1 - damping ** age[..., None]) / (1 - damping)  # (row, origin, smoother)
        base = self._split(state.origin_level) + sums[:, :, None] * self._split(state.origin_trend)
        said = self._with_profiles(base, entries[:, None])  # (row, origin, candidate)
        error = np.abs(value[:, None] - said)
        running = judged[:, None] & ~np.isnan(state.origin_level[..., 0]) & (age <= self.horizon)
        n_new = running.sum(axis=1)
        total = np.where(running[..., None], error, 0.0).sum(axis=1)
        kept = np.where(n_new > 0, 1 - self.judged_every / self.memory, 1.0)
        state.errors = kept[:, None] * state.errors + total
        state.n_errors = kept * state.n_errors + n_new

    def _start_forecasts(self, state: BankState) -> None:
        """The candidates start a running forecast here, if it is time for one."""
        stride = self._stride
        due = (state.n_rows >= ROWS_BEFORE_JUDGING) & (state.n_rows % stride == 0) & (state.silent == 0)
        rows = np.flatnonzero(due)
        place = (state.n_rows[rows] // stride) % ORIGINS
        state.origin_level[rows, place] = state.level[rows]
        state.origin_trend[rows, place] = state.trend[rows]

    @property
    def memory(self) -> float:
        """Rows for which errors are remembered: four horizons, and of each season several."""
        return max(MEMORY_HORIZONS * self.horizon, MEMORY_SEASONS * max(self.seasons, default=1))

    @cached_property
    def judged_every(self) -> int:
        """Rows between two that candidates are judged by: about eight in a horizon, and all places of a season."""
        every = max(1, self.horizon // 8)
        while any(gcd(every, season) > 1 for season in self.seasons):
            every += 1
        return every

    @property
    def _stride(self) -> int:
        return max(1, -(-self.horizon // ORIGINS))

    def _ages(self, state: BankState) -> Int[np.ndarray, "row origin"]:
        """How many rows ago each running forecast was started, counting the row that comes now."""
        turn = state.n_rows // self._stride  # of the newest possible start
        behind = (turn[:, None] - np.arange(ORIGINS)) % ORIGINS
        return state.n_rows[:, None] + 1 - (turn[:, None] - behind) * self._stride

    def _places(self, state: BankState, steps: Int[np.ndarray, "step"]) -> Int[np.ndarray, "row step season"]:
        """Where in each season rows are, so many steps after the next one."""
        lengths = np.array(self.seasons, dtype=int)
        if not len(lengths):
            return np.zeros((len(state), len(steps), 0), dtype=int)
        return self._season_offsets + (state.n_rows[:, None, None] + steps[:, None]) % lengths

    def profile_entries(self, state: BankState, n_steps: int) -> Float[np.ndarray, "row step profile"]:
        """The profile entries of the next rows.

        A place of a season that has had no value yet has the entry of the shorter season before it, if that fits in.
        """
        if not self.seasons:
            return np.zeros((len(state), n_steps, 0))
        steps = np.arange(n_steps)
        places = self._offsets + (state.n_rows[:, None, None] + steps[:, None]) % self._lengths
        each = np.arange(len(state))[:, None, None]
        entries = state.profiles[each, places]
        if len(self.seasons) == 1:
            return entries
        visits = state.visits[each, self._places(state, steps)]
        by_season = entries.reshape(*entries.shape[:2], len(self.seasons), -1)
        for number in range(1, len(self.seasons)):
            if self.seasons[number] % self.seasons[number - 1] == 0:
                is_new = (visits[..., number] == 0)[..., None]
                by_season[..., number, :] = np.where(is_new, by_season[..., number - 1, :], by_season[..., number, :])
        return entries

    def _split(self, candidates: np.ndarray) -> np.ndarray:
        """(..., candidate) as (..., 1 + profile, smoother)."""
        return candidates.reshape(*candidates.shape[:-1], 1 + len(self.profile_kinds), self.n_smoothers)

    def _with_profiles(self, base: np.ndarray, entries: np.ndarray) -> np.ndarray:
        """Levels (..., 1 + profile, smoother) with the entries (..., profile) put on; all candidates in one axis."""
        _, multiplies, _ = self._of_profile
        factor = np.where(multiplies, entries, 1.0)[..., None]
        term = np.where(multiplies, 0.0, entries)[..., None]
        with_season = base[..., 1:, :] * factor + term
        found = np.concatenate((base[..., :1, :], with_season), axis=-2)
        return found.reshape(*found.shape[:-2], -1)

    def _without_profiles(
        self, value: Float[np.ndarray, "row 1"], entries: Float[np.ndarray, "row profile"]
    ) -> Float[np.ndarray, "row one_plus_profile"]:
        """The value as it is without any profile, then without each of them."""
        _, multiplies, _ = self._of_profile
        divided = value / np.where(multiplies, np.maximum(entries, 2 * SMALLEST_FACTOR), 1.0)
        return np.concatenate((value, np.where(multiplies, divided, value - entries)), axis=1)


@lru_cache(64)
def _structure(bank: Bank) -> CompiledBank:
    """The candidates as C sees them."""
    season, multiplies, rates = bank._of_profile
    level, trend, damping = bank._rates
    ages = np.arange(bank.horizon + 1)[:, None]
    whole = {"lengths": np.array(bank.seasons), "season_starts": bank._season_offsets}
    whole |= {"season_of": season, "starts": bank._offsets}
    arrays = {
        **{name: np.ascontiguousarray(array, dtype=np.int64) for name, array in whole.items()},
        "multiplies": multiplies.astype(np.uint8),
        "rates": rates,
        "level_rates": level,
        "trend_rates": trend,
        "damping": damping,
        "sums": damping * (1 - damping**ages) / (1 - damping),
    }
    numbers = {
        "seasons": len(bank.seasons),
        "profiles": len(bank.profile_kinds),
        "smoothers": bank.n_smoothers,
        "origins": ORIGINS,
        "places": sum(bank.seasons),
        "entries": int(bank._lengths.sum()),
        "horizon": bank.horizon,
        "stride": bank._stride,
        "judged_every": bank.judged_every,
        "rows_before_judging": ROWS_BEFORE_JUDGING,
        "remembered": 1 - bank.judged_every / bank.memory,
        "size_rate": SIZE_RATE,
        "profile_level_rate": PROFILE_LEVEL_RATE,
        "profile_level_seasons": PROFILE_LEVEL_SEASONS,
        "smallest_factor": SMALLEST_FACTOR,
        "largest_factor": LARGEST_FACTOR,
        "oldest": bank.horizon,
    }
    return bank_structure(numbers, arrays)
