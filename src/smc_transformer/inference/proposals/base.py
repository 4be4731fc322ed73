"""What a proposal is: how the particles' attention vectors z(t) are drawn once X_t is known.

A proposal is one small file in this folder with a class under the decorator `proposal`. Whatever it draws from, the
weights are corrected, so that the likelihood stays unbiased.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.state import Moved, ParticleState
from smc_transformer.network import Network


class Proposed(NamedTuple):
    """Attention vectors drawn by a proposal, and how they change the weights."""

    moved: Moved
    log_correction: Float[Tensor, "batch particle"]
    """log p(eps) / q(eps), to be added to the log-weights."""


class Proposal(ABC):
    """How to draw z(t).

    Attributes:
        draws_again: whether z(t) may be drawn again once X_t is known.
        anticipates: whether particles are selected by how well they will predict X_t (the auxiliary filter).
    """

    draws_again = True
    anticipates = False

    def first_stage(
        self,
        network: Network,
        mean: Float[Tensor, "batch particle d_model"],
        embedding: Float[Tensor, "batch 1 d_model"],
        last: Float[Tensor, "batch _ n_targets"],
        target: Float[Tensor, "batch n_targets"],
    ) -> Float[Tensor, "batch particle"]:
        """Logarithms of how well each particle will predict X_t, for a proposal that anticipates it.

        Args:
            network: the network.
            mean: z(t) as it would be without noise on q, k, v and z.
            embedding: e_{t-1}.
            last: targets of X_{t-1}.
            target: X_t.
        """
        raise NotImplementedError

    @abstractmethod
    def propose(
        self,
        network: Network,
        state: ParticleState,
        moved: Moved,
        target: Float[Tensor, "batch n_targets"],
        generator: Generator | None,
    ) -> Proposed | None:
        """New attention vectors of particles that have just moved on; None keeps those they have."""


PROPOSALS: dict[str, Proposal] = {}
"""The proposals by name."""


def proposal(kind: type[Proposal]) -> type[Proposal]:
    """Make a proposal known by its module's name."""
    PROPOSALS[kind.__module__.rsplit(".", 1)[-1]] = kind()
    return kind
