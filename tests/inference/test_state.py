"""The rows of a particle state: taken out, put back, joined, as a ring, and written to a file."""

import pytest
import torch
from helpers.models import make_model
from helpers.unequal import after, unequal

from smc_transformer.inference.state import ParticleState

LENGTHS = (9, 1, 4)


def states(window=None, capacity=12, gap_at=None, encoder="gru"):
    """A model and the particles of three sequences."""
    model = make_model(d_model=4, d_ff=5, window=window, encoder=encoder, ess_threshold=1.0)
    return model, unequal(model, model.settings(6), LENGTHS, capacity, gap_at=gap_at)


def assert_same_rows(one, other):
    """The same rows, in what has been written of them."""
    assert one.layout == other.layout
    found, expected = one.named_tensors(), other.named_tensors()
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]), name


@pytest.mark.parametrize("gap_at", [None, 2])
@pytest.mark.parametrize("encoder", ["gru", "lstm", "linear"])
def test_rows_apart_and_together_again(gap_at, encoder):
    _, whole = states(gap_at=gap_at, encoder=encoder)
    rows = [whole.take(torch.tensor([row])) for row in range(3)]
    assert [len(row) for row in rows] == [1, 1, 1]
    assert [row.n_slots.item() for row in rows] == [8, 0, 3]
    assert_same_rows(ParticleState.cat(rows), whole)
    assert_same_rows(whole.take(torch.tensor([2, 0])), ParticleState.cat([rows[2], rows[0]]))
    assert_same_rows(whole.take(slice(1, None)), ParticleState.cat(rows[1:]))


def test_a_row_that_was_taken_has_memory_of_its_own_and_a_slice_has_not():
    _, whole = states()
    before = whole.log_weights.clone()
    whole.take(torch.tensor([0])).log_weights.zero_()
    assert torch.equal(whole.log_weights, before)
    whole.take(slice(0, 1)).log_weights.zero_()
    assert not whole.log_weights[0].any()
    assert torch.equal(whole.log_weights[1:], before[1:])


def test_rows_are_put_where_they_belong():
    model, whole = states()
    other = after(model, model.settings(6), 7, 5, 12)
    expected = ParticleState.cat([whole.take(slice(0, 2)), other])
    whole.put(torch.tensor([2]), other)
    assert_same_rows(whole, expected)
    assert whole.n_slots.tolist() == [8, 0, 4]


def test_one_row_that_has_inherited_is_enough_for_all_to_be_read_through_the_table():
    model, _ = states()
    settings = model.settings(6)
    old, new = (after(model, settings, row, length, 12) for row, length in ((0, 9), (1, 1)))
    assert (old.trajectories_are_own, new.trajectories_are_own) == (False, True)
    assert not ParticleState.cat([new, old]).trajectories_are_own
    assert not ParticleState.cat([old, new]).trajectories_are_own
    new.put(torch.tensor([0]), old)
    assert not new.trajectories_are_own


@pytest.mark.parametrize("window", [1, 3, 8, 20])
def test_a_ring_holds_what_a_stream_with_this_window_would(window):
    """Sequences of several lengths: the ring has gone round, is not full, or is empty."""
    model, _ = states(window=window)
    settings = model.settings(6)
    growing, ring = unequal(model, settings, LENGTHS, 12), unequal(model, settings, LENGTHS, window)
    assert growing.capacity == 12
    found, expected = growing.as_ring(window).named_tensors(), ring.named_tensors()
    assert found.keys() == expected.keys()
    for name in expected:  # a ring has its slots in another order, in which sums are rounded differently
        torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", [None, 3])
def test_the_last_slots_come_in_the_order_of_time(window):
    model, _ = states(window=window)
    settings = model.settings(6)
    whole = unequal(model, settings, LENGTHS, 12)
    held = unequal(model, settings, LENGTHS, window or 12)
    how_many = model.attention.n_earlier(whole.n_slots)
    assert how_many.tolist() == ([8, 0, 3] if window is None else [2, 0, 2])
    past = held.last_slots(how_many, held.themselves)
    assert past.n_slots.tolist() == how_many.tolist()
    for row, (n_slots, count) in enumerate(zip(whole.n_slots.tolist(), how_many.tolist(), strict=True)):
        for name in ("keys", "values", "trajectories"):
            expected = getattr(whole, name)[row, :, n_slots - count : n_slots]
            assert torch.equal(getattr(past, name)[row, :, :count], expected), name


@pytest.mark.parametrize("gap_at", [None, 2])
@pytest.mark.parametrize("encoder", ["lstm", "linear"])
def test_named_tensors_hold_a_whole_state(gap_at, encoder):
    _, whole = states(gap_at=gap_at, encoder=encoder)
    tensors = whole.named_tensors()
    assert all(tensor.is_contiguous() for tensor in tensors.values())
    found = ParticleState.from_named_tensors(tensors)
    assert_same_rows(found, whole)
    assert found.trajectories_are_own is whole.trajectories_are_own is False


def test_what_was_never_written_is_zero_in_a_file():
    _, whole = states()
    tensors = whole.named_tensors()
    for row, n_slots in enumerate(whole.n_slots.tolist()):
        assert tensors["keys"][row, :, :n_slots].all()
        for name in ("keys", "values", "trajectories"):
            assert not tensors[name][row, :, n_slots:].any()
