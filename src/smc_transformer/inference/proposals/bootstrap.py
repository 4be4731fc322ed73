"""The paper's proposal: z(t) from the model itself, whatever X_t is."""

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.proposals.base import Proposal, Proposed, proposal

if TYPE_CHECKING:
    from smc_transformer.inference.population import Population


@proposal
class Bootstrap(Proposal):
    """Keeps what was drawn."""

    draws_again = False

    def propose(
        self,
        population: "Population",
        parameters: Float[Tensor, "batch particle n_parameters"],
        target: Float[Tensor, "batch n_targets"],
        generator: Generator | None,
    ) -> Proposed | None:
        return None
