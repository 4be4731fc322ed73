"""What a proposal is: how the particles' attention vectors z(t) are drawn once X_t is known.

A proposal is one small file in this folder with a class under the decorator `proposal`. Whatever it draws from, the
weights are corrected, so that the likelihood stays unbiased.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Float
from torch import Generator, Tensor

if TYPE_CHECKING:
    from smc_transformer.inference.population import Population


class Proposed(NamedTuple):
    """Attention vectors drawn by a proposal, and what comes of them."""

    eps: Float[Tensor, "batch particle d_model"]
    """The standard noise of z that would have made them."""
    z: Float[Tensor, "batch particle d_model"]
    parameters: Float[Tensor, "batch particle n_parameters"]
    """Parameters of the distribution of X_t."""
    log_correction: Float[Tensor, "batch particle"]
    """log p(eps) / q(eps), to be added to the log-weights."""


class Proposal(ABC):
    """How to draw z(t).

    Attributes:
        draws_again: whether z(t) may be drawn again once X_t is known.
        looks_ahead: whether particles are selected by how well they predict X_t (the auxiliary filter).
    """

    draws_again = True
    looks_ahead = False

    def look_ahead(
        self,
        population: "Population",
        embedding: Float[Tensor, "batch 1 d_model"],
        target: Float[Tensor, "batch n_targets"],
    ) -> Float[Tensor, "batch particle"]:
        """Log of how well each particle will predict X_t, for a proposal that looks ahead."""
        raise NotImplementedError

    @abstractmethod
    def propose(
        self,
        population: "Population",
        parameters: Float[Tensor, "batch particle n_parameters"],
        target: Float[Tensor, "batch n_targets"],
        generator: Generator | None,
    ) -> Proposed | None:
        """New attention vectors of particles that have just been moved on; None keeps those they have."""


PROPOSALS: dict[str, Proposal] = {}
"""The proposals by name."""


def proposal(kind: type[Proposal]) -> type[Proposal]:
    """Make a proposal known by its module's name."""
    PROPOSALS[kind.__module__.rsplit(".", 1)[-1]] = kind()
    return kind
