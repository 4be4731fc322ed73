"""Processes that work together: each has a part, and what all need is the same for all.

The processes are those of torch's default process group (`torch.distributed`, started by torchrun or by hand). Outside
of a group there is one process: everything is its own share, and nothing is sent. All functions that send must be
called by all processes, in the same order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Generator, Tensor

from smc_transformer.support.randomness import derived_generator

T = TypeVar("T")


class ProcessError(RuntimeError):
    """Another process has failed, and why; that process raises its own error."""


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if size() > 1 else 0


def share(n: int) -> slice:
    """Which of n things are this process's; in the order of processes the shares are all of them, in their order."""
    return slice(rank() * n // size(), (rank() + 1) * n // size())


def own_generator(*seeds: int, device: torch.device | str = "cpu") -> Generator:
    """`derived_generator`, another one in each process; in the first, and alone, that of these seeds."""
    return derived_generator(*seeds, *([rank()] if rank() else []), device=device)


class _Outcome(NamedTuple):
    value: Any
    failure: str | None


def gather(value: T) -> list[T]:
    """What each process has, in the order of processes, in all of them."""
    if size() == 1:
        return [value]
    found: list[Any] = [None] * size()
    dist.all_gather_object(found, value)
    return found


def gather_made(make: Callable[[], T]) -> list[T]:
    """What each process makes, in all of them; an error of one ends all, so that nobody waits for it."""
    if size() == 1:
        return [make()]
    error, outcome = None, _Outcome(None, None)
    try:
        outcome = _Outcome(make(), None)
    except Exception as caught:
        error, outcome = caught, _Outcome(None, f"{type(caught).__name__}: {caught}")
    outcomes = gather(outcome)
    if error is not None:
        raise error
    for number, other in enumerate(outcomes):
        if other.failure is not None:
            raise ProcessError(f"process {number} has failed: {other.failure}")
    return [other.value for other in outcomes]


def together(make: Callable[[], T]) -> T:
    """What this process makes, once all have made theirs; an error of one ends all. `make` must not send."""
    made: list[T] = []
    gather_made(lambda: made.append(make()))
    return made[0]


def made_by_first(make: Callable[[], T]) -> T:
    """What the first process makes, in all of them; its error too."""
    if size() == 1:
        return make()
    error, outcome = None, _Outcome(None, None)
    if rank() == 0:
        try:
            outcome = _Outcome(make(), None)
        except Exception as caught:
            error, outcome = caught, _Outcome(None, f"{type(caught).__name__}: {caught}")
    sent = [outcome]
    dist.broadcast_object_list(sent, src=0)
    if error is not None:
        raise error
    if sent[0].failure is not None:
        raise ProcessError(f"process 0 has failed: {sent[0].failure}")
    return sent[0].value


def gather_to_first(value: T) -> list[T] | None:
    """What each process has, in the first one; None in the others."""
    if size() == 1:
        return [value]
    found: list[Any] | None = [None] * size() if rank() == 0 else None
    dist.gather_object(value, found, dst=0)
    return found


def sum_(tensor: Tensor) -> None:
    """Add up what all processes have in a tensor, in place."""
    if size() > 1:
        dist.all_reduce(tensor)
