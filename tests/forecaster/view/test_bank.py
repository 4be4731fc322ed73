"""The bank of smoothers against naive loops over one series and one candidate."""

from itertools import product

import numpy as np
import pytest

from smc_transformer.forecaster.view.bank import (
    LEVEL_RATES,
    ORIGINS,
    PROFILE_LEVEL_RATE,
    PROFILE_LEVEL_SEASONS,
    PROFILE_RATES,
    TRENDS,
    Bank,
    BankState,
)

SMOOTHERS = list(product(LEVEL_RATES, TRENDS))


def some_series(n: int, seed: int, *, gaps: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    season = np.array([1.3, 0.8, 1.1, 0.8])[np.arange(n) % 4]
    values = (20 + 0.1 * np.arange(n)) * season + rng.normal(size=n)
    values[rng.random(n) < gaps] = np.nan
    values[0] = 20.0
    return values


def fed(bank: Bank, columns: list[np.ndarray]) -> BankState:
    state = bank.begin(len(columns))
    for y in np.stack(columns).T:
        bank.observe(state, y)
    return state


class Naive:
    """One candidate of one series, by the book: error correction of level, trend and profile."""

    def __init__(self, season: int | None, multiplies: bool, profile_rate: float, rate: float, trend: tuple):
        self.m, self.multiplies, self.profile_rate, self.rate, self.trend = (
            season,
            multiplies,
            profile_rate,
            rate,
            trend,
        )
        self.profile = [1.0 if multiplies else 0.0] * (season or 1)
        self.visits = [0] * (season or 1)
        self.level = self.slope = self.reference = None
        self.n_observed = self.n = 0

    def without(self, y: float, entry: float) -> float:
        if self.m is None:
            return y
        return y / max(entry, 0.1) if self.multiplies else y - entry

    def observe(self, y: float) -> None:
        place = self.n % (self.m or 1)
        entry = self.profile[place]
        if self.level is None:
            self.level, self.slope, self.reference = y, 0.0, y
        else:
            beta, phi = self.trend
            level, slope = self.level + phi * self.slope, phi * self.slope
            if not np.isnan(y):
                error = self.without(y, entry) - level
                gain = max(self.rate, 1 / (self.n_observed + 1))
                level, slope = level + gain * error, slope + gain * beta * error
            self.level, self.slope = level, slope
            if self.m is not None and not np.isnan(y):
                gain = max(min(PROFILE_LEVEL_RATE, PROFILE_LEVEL_SEASONS / self.m), 1 / (self.n_observed + 1))
                error = min(max(y / self.reference - entry, -1), 1) if self.multiplies else y - self.reference - entry
                step = max(self.profile_rate, 1 / (self.visits[place] + 1.5)) * (1 - gain / 2)
                self.profile[place] = entry + step * error
                self.reference += gain * (self.without(y, entry) - self.reference)
        if not np.isnan(y):
            self.n_observed += 1
            self.visits[place] += 1
        self.n += 1

    def forecast(self, h: int) -> float:
        _, phi = self.trend
        base = self.level + sum(phi**i for i in range(1, h + 1)) * self.slope
        if self.m is None:
            return base
        entry = self.profile[(self.n + h - 1) % self.m]
        return base * entry if self.multiplies else base + entry


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_every_candidate_is_the_naive_loop(gaps: float):
    bank, y = Bank((4,), 6), some_series(40, 0, gaps=gaps)
    said = bank.ahead(fed(bank, [y, y[::-1].copy()]) if not gaps else fed(bank, [y]), 9)[0]
    kinds = [(None, False, 0.0), *((4, multiplies, rate) for multiplies, rate in product((False, True), PROFILE_RATES))]
    for number, (kind, (rate, trend)) in enumerate(product(kinds, SMOOTHERS)):
        naive = Naive(*kind, rate, trend)
        for value in y:
            naive.observe(float(value))
        np.testing.assert_allclose(said[:, number], [naive.forecast(h) for h in range(1, 10)], rtol=1e-10)


def test_a_horizon_is_nothing_else_than_missing_rows():
    bank, y = Bank((4,), 6), some_series(50, 1)
    state = fed(bank, [y])
    ahead, seasonal = bank.ahead(state, 6), bank.seasonal(state, 6)
    for step in range(6):
        np.testing.assert_allclose(bank.ahead(state, 1)[0, 0], ahead[0, step], rtol=1e-12)
        np.testing.assert_array_equal(bank.seasonal(state, 1)[0, 0], seasonal[0, step])
        bank.observe(state, np.array([np.nan]))
    assert state.silent.tolist() == [6]


@pytest.mark.parametrize(("horizon", "every"), [(8, 1), (24, 3)])
def test_errors_are_those_of_free_running_forecasts(horizon, every):
    """Started every few rows, left alone over the horizon; profiles go on learning, as they do where it matters."""
    bank, y = Bank((), horizon), some_series(80, 2)
    state, stride, kept = bank.begin(1), horizon // ORIGINS, 1 - every / bank.memory
    starts: dict[int, np.ndarray] = {}
    errors, count = np.zeros(bank.n_candidates), 0.0
    for t, value in enumerate(y):
        running = [said[t - start - 1] for start, said in starts.items() if t - start <= horizon and t > start]
        if running and t % every == 0:
            errors, count = kept * errors + np.abs(value - np.stack(running)).sum(axis=0), kept * count + len(running)
        bank.observe(state, np.array([value]))
        if (t + 1) >= 2 and (t + 1) % stride == 0:
            starts[t] = bank.ahead(state, horizon)[0]
    np.testing.assert_allclose(state.errors[0], errors, rtol=1e-9)
    np.testing.assert_allclose(state.n_errors[0], count, rtol=1e-9)


@pytest.mark.parametrize(("seasons", "horizon", "every"), [((24, 168), 48, 11), ((12,), 24, 5), ((7,), 56, 8)])
def test_judged_rows_are_in_all_places_of_a_season(seasons, horizon, every):
    assert Bank(seasons, horizon).judged_every in range(horizon // 8, every + 1)
    for season in seasons:
        places = {row % season for row in range(0, season * 200, Bank(seasons, horizon).judged_every)}
        assert len(places) == season


def test_a_long_season_begins_as_the_short_one_in_it():
    """Until a place of the week has had a value, it has the entry of its hour; hour 3 of day 1 is place 9 of 12."""
    bank, y = Bank((6, 12), 5), some_series(9, 6)
    state = fed(bank, [y])
    said = bank.ahead(state, 3)[0]  # rows 9, 10 and 11: places of the long season that are new
    short, long = (np.array([f"season {m}, " in name for name in bank.names()]) for m in (6, 12))
    levels = state.level[0][short] + state.trend[0][short]
    assert (said[0][short] != levels).any()
    entries = bank.profile_entries(state, 3)[0]  # (step, profile)
    half = entries.shape[1] // 2
    np.testing.assert_array_equal(entries[:, half:], entries[:, :half])
    for value in some_series(12, 7):
        bank.observe(state, np.array([value]))
    entries = bank.profile_entries(state, 3)[0]
    assert (entries[:, half:] != entries[:, :half]).any()
    assert long.any()


def test_series_do_not_know_each_other_and_begin_when_they_begin():
    bank, y, z = Bank((4,), 5), some_series(30, 3), some_series(18, 4)
    together = fed(bank, [y, np.concatenate((np.full(12, np.nan), z))])
    for row, own in enumerate((y, z)):
        alone = fed(bank, [own])
        for name, array in alone.arrays().items():
            np.testing.assert_array_equal(array[0], getattr(together, name)[row], err_msg=name)


def test_forecasts_go_with_the_units_of_the_series():
    bank, y = Bank((4,), 5), some_series(40, 5, gaps=0.1)
    plain, scaled = (bank.ahead(fed(bank, [values]), 5) for values in (y, 1000 * y))
    np.testing.assert_allclose(scaled, 1000 * plain, rtol=1e-9)


def test_taking_and_putting_rows():
    bank = Bank((4,), 5)
    state = fed(bank, [some_series(20, seed) for seed in range(4)])
    copy = state.take(np.array([2, 0]))
    bank.observe(copy, np.array([1.0, 2.0]))
    assert state.n_rows.tolist() == [20] * 4
    state.put(np.array([2, 0]), copy)
    assert state.n_rows.tolist() == [21, 20, 21, 20]
    assert len(BankState.cat([state, copy])) == 6


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("level", lambda array: array[:, 1:], "shape"),
        ("n_rows", lambda array: -1 - array, "between 0 and"),
        ("errors", lambda array: array * np.nan, "NaN or infinite"),
        ("size", lambda array: -1 - array, "at least 0"),
        ("visits", lambda array: array.astype(float), "int64"),
    ],
)
def test_a_damaged_state_is_refused(name, change, message):
    bank = Bank((4,), 5)
    state = fed(bank, [some_series(20, 0)])
    bank.check(state, 1)
    setattr(state, name, change(getattr(state, name)))
    with pytest.raises(ValueError, match=message):
        bank.check(state, 1)
