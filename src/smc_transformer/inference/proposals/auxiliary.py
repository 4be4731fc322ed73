"""The auxiliary filter (Pitt and Shephard, 1999): particles are also selected by how well they will predict X_t.

Before step t, particle m gets the first-stage weight W_{t-1}^m N(X_t; E[X_t | z], A A^T + S), with z as it would be
without noise on q, k and v; parents are drawn by these, and the weights of their children are divided by them. Then z
is drawn by the guided proposal. In a stream X_t is not known when particles are selected: there this is the guided
proposal.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.inference.proposals.base import proposal
from smc_transformer.inference.proposals.guided import Guided, Linearised
from smc_transformer.nn.attention import Noise

if TYPE_CHECKING:
    from smc_transformer.inference.population import Population


@proposal
class Auxiliary(Guided):
    """The guided proposal, after a selection that looks ahead."""

    looks_ahead = True

    def look_ahead(
        self,
        population: "Population",
        embedding: Float[Tensor, "batch 1 d_model"],
        target: Float[Tensor, "batch n_targets"],
    ) -> Float[Tensor, "batch particle"]:
        nothing = embedding.new_zeros(len(embedding), population.n_particles, embedding.shape[-1])
        mean, _ = population.peek(embedding, Noise(nothing, nothing, nothing, nothing))
        last = population.last[..., : target.shape[-1]]
        linear = Linearised(population.model, mean, embedding, last, target)
        return torch.where(linear.usable(), linear.log_evidence(), -torch.inf)
