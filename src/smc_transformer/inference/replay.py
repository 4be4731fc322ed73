"""Replay: all steps of given lines in one parallel causal-attention pass, with gradients.

The filter walks through time without gradients and keeps only noise, ancestors and drawn observations. They determine
a line's latents, so B x K lines can be rebuilt at once, as an ordinary transformer would process B x K sequences.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.nn.attention import Latents, Noise

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class LineInputs(NamedTuple):
    """What lines see and predict; the line axis has size 1 where all lines see the same."""

    embedding: Float[Tensor, "batch _ time d_model"]
    last_targets: Float[Tensor, "batch _ time n_targets"]
    targets: Float[Tensor, "batch _ time n_targets"]


class Replay(NamedTuple):
    """Everything along given lines, differentiable in the model's parameters."""

    latents: Latents
    attention: Float[Tensor, "batch line time d_model"]
    parameters: Float[Tensor, "batch line time n_parameters"]
    """Parameters of the law of X_t."""
    log_density: Float[Tensor, "batch line time"]
    """log p(X_t | z(t), e_{t-1}), of the whole X_t where it was drawn."""


def line_inputs(
    model: "SMCTransformer",
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    completed: Float[Tensor, "batch line time n_targets"] | None = None,
) -> LineInputs:
    """Embeddings and targets of sequences, or of each line where values were missing and `completed` by it."""
    n_targets = model.config.n_targets
    if completed is None:
        embedding = model.encoder(model.observation.features(x[:, :-1])).unsqueeze(1)
        targets = x[:, None, :, :n_targets]
        return LineInputs(embedding, targets[:, :, :-1], targets[:, :, 1:])
    n_lines = completed.shape[1]
    first = x[:, None, :1, :n_targets].expand(-1, n_lines, -1, -1)
    targets = torch.cat((first, completed), dim=2)
    known = x[:, None, :, n_targets:].expand(-1, n_lines, -1, -1)
    inputs = torch.cat((targets, known), dim=-1)[:, :, :-1]
    embedding = model.encoder(model.observation.features(inputs.flatten(0, 1)))
    return LineInputs(embedding.unflatten(0, inputs.shape[:2]), targets[:, :, :-1], completed)


def replay(
    model: "SMCTransformer", inputs: LineInputs, noise: Noise, lines: Int[Tensor, "batch line time"] | None = None
) -> Replay:
    """Rebuild the lines that this noise makes on these inputs; with `lines`, the noise is that of all particles."""
    attention = model.attention
    latents = attention.latents(inputs.embedding, noise, lines)
    z = attention.attend_all(latents) + attention.deviation(noise, lines)
    parameters = model.read_out(z, inputs.embedding, inputs.last_targets)
    return Replay(latents, z, parameters, model.observation.components(parameters).log_prob(inputs.targets))
