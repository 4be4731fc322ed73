"""The particles of all series that are followed: many series are one batched state, a row for each.

Series whose rows have the same shapes share a block, and take their steps together, however much each has seen. There
is one block for all series, with two exceptions: a series whose values have been missing has an input for each
particle, and without a window (or with a transformer encoder) what is remembered grows with the series.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from smc_transformer.forecaster.table import Name
from smc_transformer.inference.state import ParticleState


@dataclass
class _Block:
    """Rows of one layout; vacant ones belong to no series."""

    state: ParticleState
    vacant: list[int] = field(default_factory=list)


class Fleet:
    """Particle states by the names of their series."""

    def __init__(self, parts: Iterable[tuple[Sequence[Name], ParticleState]] = ()) -> None:
        self._blocks: dict[Any, _Block] = {}
        self._where: dict[Name, tuple[Any, int]] = {}
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
            self._blocks[layout] = _Block(state)
            rows = list(range(len(names)))
        elif len(block.vacant) >= len(names):
            rows = [block.vacant.pop() for _ in names]
            block.state.put(torch.tensor(rows), state)
        else:
            rows = list(range(len(block.state), len(block.state) + len(names)))
            block.state = ParticleState.cat((block.state, state))
        self._where.update((name, (layout, row)) for name, row in zip(names, rows, strict=True))

    def take(self, names: Sequence[Name]) -> ParticleState:
        """A copy of the rows of series of one layout."""
        layout, _ = self._where[names[0]]
        return self._blocks[layout].state.take(torch.tensor([self._where[name][1] for name in names]))

    def put(self, names: Sequence[Name], state: ParticleState) -> None:
        """Replace the rows of series, which may have got another layout."""
        layout, _ = self._where[names[0]]
        block, rows = self._blocks[layout], [self._where[name][1] for name in names]
        if state.layout == layout:
            block.state.put(torch.tensor(rows), state)
            return
        block.vacant += rows
        if len(block.vacant) == len(block.state):
            del self._blocks[layout]
        self.add([(names, state)])

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
        layout, row = self._where[name]
        state = self._blocks[layout].state
        return state.capacity - int(state.n_slots[row])

    def blocks(self) -> list[tuple[list[Name], ParticleState]]:
        """All rows, block by block, with their names."""
        names: dict[Any, list[Name]] = {layout: [] for layout in self._blocks}
        for name, (layout, _) in self._where.items():
            names[layout].append(name)
        return [(own, self.take(own)) for own in names.values()]
