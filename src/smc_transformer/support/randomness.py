"""Randomness is an argument: a `torch.Generator`, a seed, or None for torch's default generator."""

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Generator

from smc_transformer.support.checks import is_whole, shown

Randomness: TypeAlias = Generator | int | None
LARGEST_SEED = 2**63 - 1


def as_generator(generator: Randomness, device: torch.device | str = "cpu") -> Generator | None:
    """A generator for a seed; generators and None pass through."""
    if generator is None or isinstance(generator, Generator):
        return generator
    return Generator(device).manual_seed(check_seed(generator))


def check_seed(seed: Any) -> int:
    """A whole number; numpy's are welcome."""
    if not is_whole(seed):
        raise TypeError(f"expected a torch.Generator, a seed (whole number) or None, got {shown(seed)}")
    if abs(int(seed)) > LARGEST_SEED:
        raise ValueError(f"a seed must be a whole number of at most 63 bits, got {shown(int(seed))}")
    return int(seed)


def derived_generator(*seeds: int, device: torch.device | str = "cpu") -> Generator:
    """A generator that depends on all the given numbers (of at least 0), and on nothing else.

    Training uses it as (seed, stream, step), so that step p draws the same numbers whether or not training was
    interrupted before it.
    """
    state = np.random.SeedSequence(seeds).generate_state(1, dtype=np.uint64)[0]
    return Generator(device).manual_seed(int(state >> np.uint64(1)))
