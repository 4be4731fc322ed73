"""The paper's proposal: z(t) from the model itself, whatever X_t is."""

from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.proposals.base import Proposal, Proposed, proposal
from smc_transformer.inference.state import Moved, ParticleState
from smc_transformer.network import Network


@proposal
class Bootstrap(Proposal):
    """Keeps what was drawn."""

    draws_again = False

    def propose(
        self,
        network: Network,
        state: ParticleState,
        moved: Moved,
        target: Float[Tensor, "batch n_targets"],
        generator: Generator | None,
    ) -> Proposed | None:
        return None
