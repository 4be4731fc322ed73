"""Random streams that belong to sequences: what a sequence draws does not depend on those that it shares a batch with.

A stream is told by a key (of a seed and the name of a series, say) and a step; its draws are numbered. So a panel, one
series alone and any partition of the panel draw the same numbers, in any order and on any machine, and nothing has to
be remembered between two steps. Numbers come from a counter (kernels/noise.c, kernels/gamma.c), or without kernels from
numpy's Philox with the same key: another stream.
"""

import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.kernels.choice import in_c
from smc_transformer.kernels.noise import fill_normal_rows, fill_uniform_rows, gamma_rows, poisson_rows
from smc_transformer.nn.conditions import explain_draws
from smc_transformer.smc.randomness import SequenceGenerator

SELECTION, NOISE, OBSERVATION, JUDGEMENT = (stage << 24 for stage in range(4))
"""What is drawn in a step of the filter: each has draws of its own, as not every sequence needs all of them."""


class Streams(SequenceGenerator):
    """A stream for each sequence of a batch, at a step of its own, and the number of the next draw there."""

    keys: Int[Tensor, "batch"]
    steps: Int[Tensor, "batch"]
    n_draws: int

    def __new__(cls, *_: Any) -> "Streams":
        """A generator of the CPU, whatever the arguments."""
        return super().__new__(cls)

    def __init__(self, keys: Int[Tensor, "batch"], steps: Int[Tensor, "batch"] | None = None, n_draws: int = 0) -> None:
        self.keys = keys
        self.steps = torch.zeros_like(keys) if steps is None else steps
        self.n_draws = n_draws
        # For parts of a user that know generators of torch only: the same numbers for the same batch.
        told = self.keys.numpy() * 3 + self.steps.numpy()
        self.manual_seed(int(told.sum()) % 2**63)

    @classmethod
    def named(cls, names: Iterable[Hashable], seed: int, purpose: str) -> "Streams":
        """The streams of series by their names; other purposes have other streams."""
        return cls(torch.tensor([stream_key(name, seed, purpose) for name in names], dtype=torch.long))

    def __len__(self) -> int:
        """Sequences."""
        return len(self.keys)

    def take(self, rows: slice | Int[Tensor, "row"] | list[int]) -> "Streams":
        """Those of some sequences."""
        return Streams(self.keys[rows], self.steps[rows], self.n_draws)

    def at(self, steps: Int[Tensor, "batch"] | int, n_draws: int = 0) -> "Streams":
        """The same at other steps, with the number of the next draw there."""
        if not isinstance(steps, Tensor) or steps.shape != self.keys.shape:
            steps = torch.as_tensor(steps).expand_as(self.keys)
        return Streams(self.keys, steps.contiguous(), n_draws)

    def next_draw(self) -> int:
        """The number of the next draw, which is then taken."""
        self.n_draws += 1
        return self.n_draws - 1

    def uniforms(self, shape: tuple[int, ...]) -> Float[Tensor, "batch ..."]:
        self._check(shape)
        if in_c(explain_draws(torch.empty(0))):
            return fill_uniform_rows(torch.empty(shape, dtype=torch.float64), self.keys, self.steps, self.next_draw())
        return self._rows(lambda random, row: random.random(shape[1:]))

    def normals(self, shape: tuple[int, ...], like: Tensor) -> Float[Tensor, "batch ..."]:
        """Standard normal numbers of the type of `like`."""
        self._check(shape)
        if in_c(explain_draws(like)):
            return fill_normal_rows(like.new_empty(shape), self.keys, self.steps, self.next_draw())
        return self._rows(lambda random, row: random.standard_normal(shape[1:])).to(like)

    def gammas(self, shapes: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """Numbers of the standard Gamma distributions of these shapes."""
        if in_c(explain_draws(torch.empty(0))):
            return gamma_rows(shapes, self.keys, self.steps, self.next_draw()).to(shapes)
        rows = shapes.double().numpy()
        return self._rows(lambda random, row: random.standard_gamma(rows[row])).to(shapes)

    def poissons(self, rates: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """Poisson numbers of these rates."""
        if in_c(explain_draws(torch.empty(0))):
            return poisson_rows(rates, self.keys, self.steps, self.next_draw()).to(rates)
        rows = rates.double().numpy()
        return self._rows(lambda random, row: random.poisson(rows[row]).astype(float)).to(rates)

    def _rows(self, draw: Any) -> Float[Tensor, "batch ..."]:
        """What a generator of each sequence's own draws."""
        number = self.next_draw()
        keys, steps = (part.numpy().view(np.uint64) for part in (self.keys, self.steps))
        found = []
        for row in range(len(self)):
            source = np.random.Philox(key=np.array([keys[row], steps[row]]), counter=[0, 0, 0, number])
            found.append(draw(np.random.Generator(source), row))
        return torch.from_numpy(np.stack(found))

    def _check(self, shape: tuple[int, ...]) -> None:
        if shape[0] != len(self):
            raise ValueError(f"there are streams of {len(self)} sequences, but {shape[0]} draw from them")


def stream_key(name: Hashable, seed: int, purpose: str) -> int:
    """64 bits that are told by a name, a seed and a purpose, on every machine: the key of a stream."""
    kind = {str: "text", tuple: "several"}.get(type(name), "number")
    told = "\0".join((purpose, str(seed), kind, str(name)))
    return int.from_bytes(
        hashlib.blake2b(told.encode(errors="surrogatepass"), digest_size=8).digest(), "big", signed=True
    )


def rows_of(
    generator: Generator | None, rows: slice | Int[Tensor, "row"] | list[int], n_draws: int | None = None
) -> Generator | None:
    """The streams of some sequences, from a given draw on or the next one; another generator as it is."""
    if not isinstance(generator, Streams):
        return generator
    chosen = generator.take(rows)
    return chosen if n_draws is None else chosen.at(chosen.steps, n_draws)


def in_stage(
    generator: Generator | None, stage: int, steps: Int[Tensor, "batch"] | None = None, ahead: int = 0
) -> Generator | None:
    """Streams where a stage of a step begins, `ahead` of these or their own steps; another generator as it is."""
    if not isinstance(generator, Streams):
        return generator
    return generator.at((generator.steps if steps is None else steps) + ahead, stage)


def standard_gamma(shapes: Float[Tensor, "batch ..."], generator: Generator | None) -> Float[Tensor, "batch ..."]:
    """Numbers of the standard Gamma distributions of these shapes."""
    if isinstance(generator, Streams):
        return generator.gammas(shapes)
    # torch.distributions.Gamma draws with this function too, but takes no generator.
    return torch._standard_gamma(shapes.contiguous(), generator=generator)


def poisson(rates: Float[Tensor, "batch ..."], generator: Generator | None) -> Float[Tensor, "batch ..."]:
    """Poisson numbers of these rates."""
    return generator.poissons(rates) if isinstance(generator, Streams) else torch.poisson(rates, generator=generator)
