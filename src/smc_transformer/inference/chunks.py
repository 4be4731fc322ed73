"""Work on many sequences in chunks, so that its memory is bounded."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from torch import Tensor

from smc_transformer.smc.weights import WeightCollapseError

Found = TypeVar("Found")


def in_chunks(work: Callable[..., Found], at_once: int, *tensors: Tensor) -> Iterator[Found]:
    """What `work` finds for each chunk, one after the other: a chunk is worked on when its result is asked for.

    Args:
        work: called with the chunks of all tensors. A `WeightCollapseError` that it raises names a sequence of the
            chunk; the error raised here names the same sequence by its place among all.
        at_once: sequences in a chunk.
        tensors: their first axis is that of the sequences, of the same length in all.
    """
    first = 0
    for chunks in zip(*(tensor.split(at_once) for tensor in tensors), strict=True):
        try:
            yield work(*chunks)
        except WeightCollapseError as error:
            raise WeightCollapseError(first + error.sequence, error.step) from None
        first += at_once
