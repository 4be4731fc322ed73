"""Where uniform numbers come from: one generator for a batch, or a stream of its own for each of its sequences."""

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Generator, Tensor


class SequenceGenerator(Generator):
    """A generator of a batch in which each sequence has a stream of its own, whichever others are in the batch.

    Whoever draws from it as from any generator of torch draws numbers that the sequences share.
    """

    @abstractmethod
    def uniforms(self, shape: tuple[int, ...]) -> Float[Tensor, "batch ..."]:
        """Numbers in [0, 1), in float64; the first axis is that of the sequences."""


def draw_uniform(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """Uniform numbers in [0, 1) of the type of `like`."""
    if isinstance(generator, SequenceGenerator):
        # Rounded down, as a number just below 1 must not become 1.
        largest = 1 - torch.finfo(like.dtype).eps / 2
        return generator.uniforms(shape).clamp(max=largest).to(like)
    return torch.rand(shape, generator=generator, dtype=like.dtype, device=like.device)
