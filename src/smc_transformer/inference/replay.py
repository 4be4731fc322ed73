"""Replay: all steps of given trajectories in one parallel causal-attention pass, with gradients.

The filter walks through time without gradients and keeps only noise, ancestors and drawn observations. They determine
a trajectory's latents, so B x K trajectories can be rebuilt at once, as an ordinary transformer would process B x K
sequences.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.inference import compiled, engine
from smc_transformer.inference.compiled import SharedEmbedding
from smc_transformer.network import Network
from smc_transformer.nn.attention import Latents, Noise


class TrajectoryInputs(NamedTuple):
    """What trajectories see and predict; the trajectory axis has size 1 where all trajectories see the same."""

    embedding: Float[Tensor, "batch _ time d_model"] | SharedEmbedding
    """Each once where trajectories with gaps share them."""
    last_targets: Float[Tensor, "batch _ time n_targets"]
    targets: Float[Tensor, "batch _ time n_targets"]

    @property
    def embedding_of_each(self) -> Float[Tensor, "batch _ time d_model"]:
        """The embeddings by trajectory, for work that is done trajectory by trajectory."""
        return self.embedding.of_trajectories() if isinstance(self.embedding, SharedEmbedding) else self.embedding


class Replay(NamedTuple):
    """Everything along given trajectories, differentiable in the model's parameters."""

    latents: Latents
    attention: Float[Tensor, "batch trajectory time d_model"]
    parameters: Float[Tensor, "batch trajectory time n_parameters"]
    """Parameters of the distribution of X_t."""
    log_density: Float[Tensor, "batch trajectory time"]
    """log p(X_t | z(t), e_{t-1}), of the whole X_t where it was drawn."""


def trajectory_inputs(
    network: Network,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    completed: Float[Tensor, "batch trajectory time n_targets"] | None = None,
    particles: Int[Tensor, "batch trajectory time"] | None = None,
) -> TrajectoryInputs:
    """Embeddings and targets of sequences, or of each trajectory where values were missing and `completed` by it.

    Ancestral trajectories that pass through the same of the `particles` have everything before that in common; what is
    common is encoded once.
    """
    n_targets = network.config.n_targets
    if completed is None:
        embedding = network.encoder(network.observation.features(x[:, :-1])).unsqueeze(1)
        targets = x[:, None, :, :n_targets]
        return TrajectoryInputs(embedding, targets[:, :, :-1], targets[:, :, 1:])
    n_trajectories = completed.shape[1]
    first = x[:, None, :1, :n_targets].expand(-1, n_trajectories, -1, -1)
    targets = torch.cat((first, completed), dim=2)
    known = x[:, None, :, n_targets:].expand(-1, n_trajectories, -1, -1)
    inputs = torch.cat((targets, known), dim=-1)[:, :, :-1]
    if engine.can_embed(network, x):
        observed = ~x[:, :-1].isnan().any(dim=-1)
        shared = compiled.run_embedding(network, inputs, observed, particles)
        return TrajectoryInputs(shared, targets[:, :, :-1], completed)
    embedding = network.encoder(network.observation.features(inputs.flatten(0, 1)))
    return TrajectoryInputs(embedding.unflatten(0, inputs.shape[:2]), targets[:, :, :-1], completed)


def replay(
    network: Network,
    inputs: TrajectoryInputs,
    noise: Noise,
    trajectories: Int[Tensor, "batch trajectory time"] | None = None,
) -> Replay:
    """Rebuild what this noise makes of these inputs; with `trajectories`, the noise is that of all particles."""
    attention = network.attention
    embedding = inputs.embedding_of_each
    latents = attention.latents(embedding, noise, trajectories)
    z = attention.attend_all(latents) + attention.deviation(noise, trajectories)
    parameters = network.read_out(z, embedding, inputs.last_targets)
    return Replay(latents, z, parameters, network.observation.components(parameters).log_prob(inputs.targets))
