"""The particles of all series that are followed: many series are one batched state, a row for each.

Series whose rows have the same shapes share a block, and take their steps together, however much each has seen. There
is one block for all series, with two exceptions: a series whose values have been missing has an input for each
particle, and without a window (or with a transformer encoder) what is remembered grows with the series.

A row is stepped in a copy (`take`, `put`), or where it stands (`lend`, `put`): keys and values, nearly all of it, are
then never copied. Blocks grow by a share of themselves, so that those who come one by one do not copy all each time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from smc_transformer.forecaster.table import Name
from smc_transformer.inference.state import ParticleState

GROWTH = 0.5
"""By which share of itself a block grows, at least."""
VACANT = 0.5
"""Share of a block beyond which its vacant rows are given back."""


@dataclass(eq=False)
class _Block:
    """Rows of one layout; vacant ones belong to no series."""

    layout: Any
    state: ParticleState
    vacant: list[int] = field(default_factory=list)


class Fleet:
    """Particle states by the names of their series."""

    def __init__(self, parts: Iterable[tuple[Sequence[Name], ParticleState]] = ()) -> None:
        self._blocks: dict[Any, _Block] = {}
        self._where: dict[Name, tuple[_Block, int]] = {}
        self.add(parts)

    def add(self, parts: Iterable[tuple[Sequence[Name], ParticleState]]) -> None:
        """Hold the states of further series; each part is the names of its rows and the rows."""
        alike: dict[Any, tuple[list[Name], list[ParticleState]]] = {}
        for names, state in parts:
            known, states = alike.setdefault(state.layout, ([], []))
            known.extend(names)
            states.append(state)
        for layout, (names, states) in alike.items():
            self._add(layout, names, states[0] if len(states) == 1 else ParticleState.cat(states))

    def _add(self, layout: Any, names: list[Name], state: ParticleState) -> None:
        block = self._blocks.get(layout)
        if block is None:
            block = self._blocks[layout] = _Block(layout, state)
            rows = list(range(len(names)))
        else:
            lacking = len(names) - len(block.vacant)
            if lacking > 0:
                first, more = len(block.state), max(lacking, int(GROWTH * len(block.state)))
                room = state.take(torch.zeros(more, dtype=torch.long))  # any rows, until there are others
                block.state = ParticleState.cat((block.state, room))
                block.vacant += reversed(range(first, first + more))
            rows = [block.vacant.pop() for _ in names]
            block.state.put(torch.tensor(rows), state)
        self._where.update((name, (block, row)) for name, row in zip(names, rows, strict=True))

    def take(self, names: Sequence[Name]) -> ParticleState:
        """A copy of the rows of series, which have one layout."""
        block, rows = self._rows(names)
        return block.state.take(torch.tensor(rows))

    def lend(self, names: Sequence[Name]) -> ParticleState:
        """The same to be stepped once, in place (`ParticleState.lend`), if the slots are a ring of the window's length.

        Nothing has happened before it is `put`.
        """
        block, rows = self._rows(names)
        return block.state.lend(torch.tensor(rows))

    def where(self, name: Name) -> tuple[ParticleState, int]:
        """The state that holds a series, and its row there."""
        block, row = self._where[name]
        return block.state, row

    def put(self, names: Sequence[Name], state: ParticleState) -> None:
        """Replace the rows of series, which may have got another layout."""
        block, rows = self._rows(names)
        if state.held is not None and state.fits(block.state):
            block.state.give_back(state)
            return
        if state.held is None and state.layout == block.layout:
            block.state.put(torch.tensor(rows), state)
            return
        state = state.dense()
        block.vacant += rows
        if len(block.vacant) == len(block.state):
            del self._blocks[block.layout]
        self.add([(names, state)])

    def drop(self, names: Iterable[Name]) -> None:
        """Forget the states of series; a block of which most is vacant becomes smaller."""
        touched: dict[_Block, None] = {}
        for name in names:
            block, row = self._where.pop(name)
            block.vacant.append(row)
            touched[block] = None
        for block in touched:
            if len(block.vacant) == len(block.state):
                del self._blocks[block.layout]
            elif len(block.vacant) > VACANT * len(block.state):
                kept = [(name, row) for name, (own, row) in self._where.items() if own is block]
                block.state, block.vacant = block.state.take(torch.tensor([row for _, row in kept])), []
                self._where.update((name, (block, place)) for place, (name, _) in enumerate(kept))

    def _rows(self, names: Sequence[Name]) -> tuple[_Block, list[int]]:
        """The block of series of one layout, and their rows in it."""
        block, _ = self._where[names[0]]
        return block, [self._where[name][1] for name in names]

    def replaced(self, parts: Iterable[tuple[Sequence[Name], ParticleState]]) -> "Fleet":
        """Another fleet, with other states of some series and with series that are new."""
        parts = list(parts)
        new = {name for names, _ in parts for name in names}
        rest = []
        for names, _ in self.blocks():
            if kept := [name for name in names if name not in new]:
                rest.append((kept, self.take(kept)))
        return Fleet([*rest, *parts])

    def groups(self, names: Sequence[Name], apart: Sequence[Any] | None = None) -> list[list[int]]:
        """Positions in `names`, grouped by layout, and by what else is to keep series `apart`."""
        alike: dict[Any, list[int]] = {}
        for number, name in enumerate(names):
            alike.setdefault((self._where[name][0], apart and apart[number]), []).append(number)
        return list(alike.values())

    def room(self, name: Name) -> int:
        """How many slots of a series have never been written."""
        block, row = self._where[name]
        return block.state.capacity - int(block.state.n_slots[row])

    def blocks(self) -> list[tuple[list[Name], ParticleState]]:
        """All rows, block by block, with their names."""
        names: dict[_Block, list[Name]] = {block: [] for block in self._blocks.values()}
        for name, (block, _) in self._where.items():
            names[block].append(name)
        return [(own, self.take(own)) for own in names.values()]
