"""The local view: causal, exactly invertible, and the same in one pass, in pieces and over gaps."""

import numpy as np
import pytest

from smc_transformer.forecaster.view.bank import Bank
from smc_transformer.forecaster.view.local import LocalView, trace


def column(n: int, seed: int = 0, gaps: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = 30 + 5 * np.sin(np.arange(n) * np.pi / 3) + rng.normal(size=n).cumsum()
    values[rng.random(n) < gaps] = np.nan
    values[0] = 30.0
    return values


def fitted(columns: list[np.ndarray]) -> LocalView:
    return LocalView.fit(Bank((6,), 5), False, columns)


def test_what_is_said_of_a_row_does_not_know_it_nor_what_comes_after():
    columns = [column(60, seed, gaps=0.1) for seed in range(3)]
    view = fitted(columns)
    changed = [np.concatenate((values[:40], 100 * np.random.default_rng(9).normal(size=20))) for values in columns]
    before, after = (trace(view, view.bank.begin(3), given) for given in (columns, changed))
    for one, other in ((before.anchor, after.anchor), (before.unit, after.unit)):
        np.testing.assert_array_equal(one[:, :41], other[:, :41])
        assert (one[:, 42:] != other[:, 42:]).any()
    np.testing.assert_array_equal(before.features[:, :41], after.features[:, :41])


def test_one_pass_is_the_same_as_pieces_and_series_alone():
    columns = [column(50, 0, 0.2), column(31, 1), column(44, 2, 0.1)]
    view = fitted(columns)
    whole_state = view.bank.begin(3)
    whole = trace(view, whole_state, columns)
    for row, values in enumerate(columns):
        state = view.bank.begin(1)
        for start, stop in ((0, 1), (1, 17), (17, len(values))):
            part = trace(view, state, [values[start:stop]])
            np.testing.assert_array_equal(part.anchor[0], whole.anchor[row, start:stop])
            np.testing.assert_array_equal(part.features[0], whole.features[row, start:stop])
            np.testing.assert_array_equal(part.unit[0], whole.unit[row, start:stop])
        for name, array in state.arrays().items():
            np.testing.assert_array_equal(array[0], getattr(whole_state, name)[row], err_msg=name)


def test_a_horizon_is_seen_as_missing_rows_are():
    values = column(40)
    view = fitted([values])
    seen = trace(view, view.bank.begin(1), [values], np.array([[0, 24]]), 5)
    gap = np.concatenate((values[:25], np.full(5, np.nan)))
    missing = trace(view, view.bank.begin(1), [gap])
    np.testing.assert_allclose(seen.ahead.anchor[0], missing.anchor[0, 25:], rtol=1e-12)
    np.testing.assert_allclose(seen.ahead.features[0], missing.features[0, 25:], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(missing.unit[0, 25:], seen.ahead.unit[0], rtol=1e-12)


def test_views_go_with_the_units_of_the_series():
    columns = [column(50, seed) for seed in range(3)]
    view = fitted(columns)
    scaled = fitted([1e4 * values for values in columns])
    assert scaled.noise == pytest.approx(view.noise)
    np.testing.assert_allclose(scaled.prior, view.prior, atol=1e-8)
    one, other = (trace(own, own.bank.begin(1), [k * columns[0]]) for own, k in ((view, 1.0), (scaled, 1e4)))
    np.testing.assert_allclose(other.anchor, 1e4 * one.anchor, rtol=1e-7)
    np.testing.assert_allclose(other.unit, 1e4 * one.unit, rtol=1e-7)
    np.testing.assert_allclose(other.features, one.features, rtol=1e-6, atol=1e-7)


def test_the_mixture_finds_the_season():
    """A pure season of six rows, twice as large in every series: candidates without it get hardly any weight."""
    season = np.tile([0.0, 4.0, 8.0, 2.0, -3.0, -6.0], 12)
    columns = [10.0 * k + k * season for k in range(1, 6)]
    view = fitted(columns)
    state = view.bank.begin(5)
    trace(view, state, columns)
    with_season = np.array([name != "no season" for name in view.bank.names()])
    assert (view.weights(state)[:, with_season].sum(axis=1) > 0.999).all()
    said = view.glance(state, 6).anchor
    np.testing.assert_allclose(said[0], columns[0][:6], atol=0.5)


def test_a_constant_series_and_one_of_zeros_have_units():
    columns = [np.full(30, 5.0), np.zeros(30), column(30)]
    view = fitted(columns)
    seen = trace(view, view.bank.begin(3), columns)
    assert np.isfinite(seen.features).all()
    assert (seen.unit > 0).all()
    np.testing.assert_allclose(seen.anchor[0], 5.0)
    np.testing.assert_array_equal(seen.anchor[1], 0.0)


def test_the_unit_follows_the_size_of_the_series_itself():
    """The same series in other units, beside ordinary ones: its view is the same in these units, however small."""
    ordinary = [column(60, seed) for seed in range(4)]
    view = fitted(ordinary)
    for factor in (2e-10, 1e-30, 1e9):
        one, other = (trace(view, view.bank.begin(1), [k * ordinary[0]]) for k in (1.0, factor))
        np.testing.assert_allclose(other.unit, factor * one.unit, rtol=1e-9)
        np.testing.assert_allclose(other.anchor, factor * one.anchor, rtol=1e-6, atol=1e-9 * factor)
        np.testing.assert_allclose(other.features, one.features, rtol=1e-6, atol=1e-7)


def test_a_series_that_hardly_moves_has_a_small_unit_and_one_that_wakes_up_a_larger_one():
    view = fitted([column(60, seed) for seed in range(4)])
    moves = np.random.default_rng(0).normal(size=60)
    columns = [np.full(60, 7.0), 7 + 2e-10 * moves, np.zeros(60), 7 + 7 * view.noise * moves]
    state = view.bank.begin(4)
    trace(view, state, columns)
    said = view.glance(state, 1)
    constant, nearly, zeros, moving = said.unit
    usual = 0.5 * view.noise * 7
    assert constant == pytest.approx(1e-5 * view.noise * 7)  # a small share of what is typical for its size
    assert nearly == pytest.approx(constant, rel=1e-3)
    assert zeros == pytest.approx(view.floor)  # it has no size of its own
    assert moving > usual  # one that moves as others do is seen as before
    assert said.features[2, 0, 3] == pytest.approx(np.log(0.05))  # told to be quiet
    for value in (8.0, 8.2, 7.9, 8.1):
        view.bank.observe(state, np.full(4, value))
    assert (view.glance(state, 1).unit > usual).all()


def test_a_series_that_was_once_large_keeps_a_unit_while_it_is_0():
    values = np.concatenate((5 + column(40), np.zeros(3000)))
    view = fitted([5 + column(60, seed) for seed in range(4)])
    seen = trace(view, view.bank.begin(1), [values])
    assert seen.unit[0, -1] == pytest.approx(min(view.floor, 1e-5 * view.noise * np.abs(values).max()))


def test_constants_survive_json():
    view = fitted([column(50, seed) for seed in range(3)])
    again = LocalView.from_dict(view.to_dict())
    np.testing.assert_array_equal(again.prior, view.prior)
    assert (again.bank, again.noise, again.floor, again.counts) == (view.bank, view.noise, view.floor, view.counts)
    with pytest.raises(ValueError, match="candidates"):
        LocalView.from_dict({**view.to_dict(), "seasons": [3, 4]})


def test_many_columns_are_looked_at_in_parts(monkeypatch):
    columns = [column(40, seed) for seed in range(5)]
    view = fitted(columns)
    state = view.bank.begin(5)
    trace(view, state, columns)
    whole = view.glance(state, 7)
    monkeypatch.setattr("smc_transformer.forecaster.view.local.NUMBERS_AT_ONCE", 2 * 7 * view.bank.n_candidates)
    for one, other in zip(view.glance(state, 7), whole, strict=True):
        np.testing.assert_array_equal(one, other)
