"""The local view in C: the numbers of numpy, and those of a column alone."""

import copy
import pickle

import numpy as np
import pytest

from smc_transformer.forecaster.view.bank import Bank
from smc_transformer.forecaster.view.bank_state import BankState
from smc_transformer.forecaster.view.local import LocalView
from smc_transformer.kernels import disabled

CASES = [((), 4, False), ((7,), 14, False), ((4, 12), 6, True), ((7, 14, 30), 40, False), ((5,), 1, False)]


def columns(seed, n_rows=90):
    """Rows of five columns: with gaps, one that begins late, one that is always 0, one with a jump."""
    random = np.random.default_rng(seed)
    values = 10 * np.exp(random.normal(size=(n_rows, 5))) + np.arange(5)
    values[random.random(values.shape) < 0.1] = np.nan
    values[: n_rows // 5, 3], values[:, 4] = np.nan, 0.0
    values[n_rows // 2 :, 1] += 1e6
    return values


def assert_close(one, other, name=""):
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(("seasons", "horizon", "counts"), CASES)
def test_numbers_are_those_of_numpy(seasons, horizon, counts):
    bank, values = Bank(seasons, horizon), columns(len(seasons))
    view = LocalView.fit(bank, counts, list(values.T))
    with disabled():
        assert_close(LocalView.fit(bank, counts, list(values.T)).prior, view.prior)
    state, other = bank.begin(5), bank.begin(5)
    for y in values:
        bank.observe(state, y)
        with disabled():
            bank.observe(other, y)
        for n_steps in (1, 9):
            said = view.glance(state, n_steps)
            with disabled():
                for part, expected in zip(said, view.glance(other, n_steps), strict=True):
                    assert_close(part, expected)
    for name, array in state.arrays().items():
        assert_close(array, other.arrays()[name], name)


def test_a_column_does_not_depend_on_those_beside_it():
    """To the bit: also where only some rows of a state are meant, in any order."""
    bank, values = Bank((7,), 14), columns(1)
    view = LocalView.fit(bank, False, list(values.T))
    state, chosen = bank.begin(8), np.array([6, 0, 3, 1, 7])
    before = {name: array[[2, 4, 5]] for name, array in bank.begin(8).arrays().items()}
    for y in values:
        bank.observe(state, y, chosen)
    said = view.glance(state, 3, chosen)
    for column, row in enumerate(chosen):
        alone = bank.begin(1)
        for y in values:
            bank.observe(alone, y[column : column + 1])
        for name, array in state.arrays().items():
            np.testing.assert_array_equal(array[row], alone.arrays()[name][0], err_msg=name)
        for part, own in zip(said, view.glance(alone, 3), strict=True):
            np.testing.assert_array_equal(part[column], own[0])
    for name, array in state.arrays().items():
        np.testing.assert_array_equal(array[[2, 4, 5]], before[name])


def test_rows_without_kernels():
    bank, values = Bank((7,), 14), columns(1)
    with disabled():
        view = LocalView.fit(bank, False, list(values.T))
        state, whole, chosen = bank.begin(7), bank.begin(5), np.array([6, 0, 3, 1, 2])
        for y in values:
            bank.observe(state, y, chosen)
            bank.observe(whole, y)
        for name, array in whole.arrays().items():
            np.testing.assert_array_equal(state.arrays()[name][chosen], array)
        for part, own in zip(view.glance(state, 2, chosen), view.glance(whole, 2), strict=True):
            np.testing.assert_array_equal(part, own)


def test_arrays_that_were_replaced_are_seen():
    bank = Bank((7,), 14)
    state = bank.begin(2)
    bank.observe(state, np.array([1.0, 2.0]))
    first = state.level
    state.level = state.level + 5
    bank.observe(state, np.array([1.0, 2.0]))
    assert (first[0] == 1.0).all()
    assert (state.level[0] > 1.0).any()


@pytest.mark.parametrize("other", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_have_memory_of_their_own(other):
    bank = Bank((7,), 14)
    view, state = LocalView(bank), bank.begin(2)
    bank.observe(state, np.array([1.0, 2.0]))
    view.glance(state, 1)
    again, own = other((view, state))
    again.bank.observe(own, np.array([3.0, 4.0]))
    assert state.n_rows.tolist() == [1, 1]
    assert own.n_rows.tolist() == [2, 2]
    again.glance(own, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda state: setattr(state, "level", state.level[:, :-1]), "level must be a contiguous array"),
        (lambda state: setattr(state, "visits", state.visits.astype(np.int32)), "visits must be a contiguous array"),
        (lambda state: setattr(state, "errors", np.asfortranarray(state.errors)), "errors must be a contiguous array"),
    ],
)
def test_c_is_given_nothing_of_another_shape(change, reason):
    bank = Bank((7,), 14)
    state = bank.begin(2)
    change(state)
    with pytest.raises(ValueError, match=reason):
        bank.observe(state, np.zeros(2))


def test_c_is_given_no_other_rows():
    bank = Bank((7,), 14)
    state = bank.begin(2)
    for rows in (np.array([2]), np.array([-1])):
        with pytest.raises(ValueError, match="rows must be among the 2 columns"):
            bank.observe(state, np.zeros(1), rows)
    with pytest.raises(ValueError, match="rows must be contiguous whole numbers"):
        bank.observe(state, np.zeros(1), np.array([0], dtype=np.int32))
    with pytest.raises(ValueError, match="2 columns, got 3 values"):
        bank.observe(state, np.zeros(3))
    assert isinstance(state, BankState)
    assert not state.n_rows.any()
