"""Sequences in chunks: their sizes, their order, and which of them a collapse names."""

import pytest
import torch

from smc_transformer.inference.chunks import in_chunks
from smc_transformer.smc import WeightCollapseError


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_every_sequence_is_worked_on_once_and_in_order(at_once):
    x, y = torch.arange(7.0).view(7, 1), torch.arange(14.0).view(7, 2)
    found = list(in_chunks(lambda one, other: one + other, at_once, x, y))
    assert [len(part) for part in found] == [min(at_once, 7 - first) for first in range(0, 7, at_once)]
    assert torch.equal(torch.cat(found), x + y)


def test_a_chunk_is_worked_on_when_its_result_is_asked_for():
    """So the memory of one chunk can be freed before the next is begun."""
    begun = []
    results = in_chunks(lambda chunk: begun.append(chunk.tolist()), 2, torch.arange(4))
    assert begun == []
    next(results)
    assert begun == [[0, 1]]


@pytest.mark.parametrize("at_once", [1, 2, 3, 10])
def test_a_collapse_names_the_sequence_among_all(at_once):
    def work(chunk):
        for place, number in enumerate(chunk.tolist()):
            if number == 5:
                raise WeightCollapseError(place, 4)

    with pytest.raises(WeightCollapseError, match=r"x\[5, 4\]") as caught:
        list(in_chunks(work, at_once, torch.arange(8)))
    assert (caught.value.sequence, caught.value.step) == (5, 4)


def test_tensors_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="zip"):
        list(in_chunks(lambda *chunks: chunks, 2, torch.zeros(4), torch.zeros(6)))
