"""The auxiliary filter (Pitt and Shephard, 1999): particles are also selected by how well they will predict X_t.

Before step t, particle m gets the first-stage weight W_{t-1}^m N(X_t; E[X_t | z], A A^T + S), with z as it would be
without noise on q, k and v; parents are drawn by these, and the weights of their children are divided by them. Then z
is drawn by the guided proposal. In a stream X_t is not known when particles are selected: there this is the guided
proposal.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.inference.proposals.base import proposal
from smc_transformer.inference.proposals.guided import Guided, Linearised
from smc_transformer.network import Network


@proposal
class Auxiliary(Guided):
    """The guided proposal, after a selection by first-stage weights."""

    anticipates = True

    def first_stage(
        self,
        network: Network,
        mean: Float[Tensor, "batch particle d_model"],
        embedding: Float[Tensor, "batch 1 d_model"],
        last: Float[Tensor, "batch _ n_targets"],
        target: Float[Tensor, "batch n_targets"],
    ) -> Float[Tensor, "batch particle"]:
        linear = Linearised(network, mean, embedding, last, target)
        return torch.where(linear.usable(), linear.log_evidence(), -torch.inf)
