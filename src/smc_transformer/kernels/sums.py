"""Gradients of parameters, as C keeps them: one after the other, the rows of weights padded to whole vectors."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

GROUPS = 64
"""Sequences are summed over in at most so many groups: the order of sums must not depend on the threads."""


def unpacked(sums: Tensor, order: Iterable[str], parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradients of the parameters by name; `order` is that of C, of which some may not be there."""
    gradients, place = {}, 0
    for name in order:
        if name not in parameters:
            continue
        shape = parameters[name].shape
        room = [_padded(size, sums.dtype) for size in shape]
        size = torch.Size(room).numel()
        padded = sums[place : place + size].view(room)
        gradients[name] = padded[tuple(slice(0, size) for size in shape)].contiguous()
        place += size
    return gradients


def _padded(size: int, dtype: torch.dtype) -> int:
    lanes = 64 // dtype.itemsize
    return -(-size // lanes) * lanes
