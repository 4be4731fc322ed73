"""The auxiliary filter (Pitt and Shephard, 1999): particles are also selected by how well they will predict X_t.

Before step t, particle m gets the first-stage weight W_{t-1}^m N(X_t; E[X_t | z], A A^T + S), with z as it would be
without noise on q, k and v; parents are drawn by these, and the weights of their children are divided by them. Then z
is drawn by the guided proposal. In a stream X_t is not known when particles are selected: there this is the guided
proposal.
"""

from smc_transformer.proposals.base import proposal
from smc_transformer.proposals.guided import Guided


@proposal
class Auxiliary(Guided):
    """The guided proposal, after a selection that looks ahead."""

    looks_ahead = True
