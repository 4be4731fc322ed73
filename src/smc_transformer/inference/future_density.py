"""The density of a future that has been chosen already given each particle's past, for backward simulation."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise
from smc_transformer.smc.genealogy import gather_trajectories, trace_trajectories


class NetworkFutureDensity:
    """Log densities of the next observations, for every pair of a trajectory and a particle that could come before it.

    Args:
        network: the network.
        x: sequences X_0, ..., X_T, all observed.
        noise: the noise of all particles.
        ancestors: their parents.
    """

    def __init__(
        self,
        network: Network,
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        noise: Noise,
        ancestors: Int[Tensor, "batch particle time"],
    ):
        self.network = network
        self.ancestors = ancestors
        self.embedding = network.encoder(network.observation.features(x[:, :-1]))
        self.targets = x[:, :, : network.config.n_targets]
        self.latents = network.attention.latents(self.embedding.unsqueeze(1), noise)
        self.deviation = network.attention.deviation(noise)

    @torch.no_grad()
    def __call__(
        self, step: int, trajectories: Int[Tensor, "batch trajectory time"], lag: int
    ) -> Float[Tensor, "batch trajectory particle"]:
        """Log p(X of the next `lag` steps | past of a particle of `step`, what the trajectory has chosen after it)."""
        n_steps = self.ancestors.shape[-1]
        past_trajectories = trace_trajectories(self.ancestors[:, :, : step + 1].contiguous())
        total = self.targets.new_zeros(*trajectories.shape[:2], self.ancestors.shape[1])
        for later in range(step + 1, min(step + 1 + lag, n_steps)):
            first = self.network.attention.first_slot(later)
            if first > step:
                break  # the past has left the window
            total += self._log_density(later, slice(first, step + 1), past_trajectories, trajectories)
        return total

    def _log_density(
        self,
        later: int,
        held: slice,
        past_trajectories: Int[Tensor, "batch particle past"],
        trajectories: Int[Tensor, "batch trajectory time"],
    ) -> Float[Tensor, "batch trajectory particle"]:
        """Log density of the observation that step `later` predicts; `held` are the slots of the past it sees."""
        attention = self.network.attention
        heads, root = (attention.n_heads, -1), math.sqrt(attention.d_model // attention.n_heads)

        def along(values: Tensor, slots: slice, way: Tensor) -> Tensor:
            return gather_trajectories(values[:, :, slots], way[:, :, slots]).unflatten(-1, heads)

        own = slice(held.stop, later + 1)
        query = along(self.latents.query, slice(later, later + 1), trajectories).squeeze(2)
        past_scores = torch.einsum("blhr,bmshr->blmsh", query, along(self.latents.key, held, past_trajectories))
        own_scores = torch.einsum("blhr,blshr->blsh", query, along(self.latents.key, own, trajectories))
        own_scores = own_scores.unsqueeze(2).expand(-1, -1, past_scores.shape[2], -1, -1)
        shares = (torch.cat((past_scores, own_scores), dim=3) / root).softmax(dim=3)
        past_shares, own_shares = shares.split((past_scores.shape[3], own_scores.shape[3]), dim=3)
        context = torch.einsum("blmsh,bmshr->blmhr", past_shares, along(self.latents.value, held, past_trajectories))
        context = context + torch.einsum("blmsh,blshr->blmhr", own_shares, along(self.latents.value, own, trajectories))
        deviation = gather_trajectories(self.deviation[:, :, later : later + 1], trajectories[:, :, later : later + 1])
        z = attention.output(context.flatten(-2)) + deviation
        parameters = self.network.read_out(z, self.embedding[:, None, None, later], self.targets[:, None, None, later])
        return self.network.observation.components(parameters).log_prob(self.targets[:, None, None, later + 1])
