"""Replay: all steps of given lines in one parallel causal-attention pass, with gradients.

The filter walks through time without gradients and keeps only noise and ancestors. A line's noise determines its
latents, so B x K lines can be rebuilt at once, as an ordinary transformer would process B x K sequences.
"""

from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Float
from torch import Tensor

from smc_transformer.nn.attention import Latents, Noise

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class Replay(NamedTuple):
    """Everything along given lines, differentiable in the model's parameters."""

    latents: Latents
    attention: Float[Tensor, "batch line time d_model"]
    means: Float[Tensor, "batch line time n_targets"]
    log_density: Float[Tensor, "batch line time"]
    """log p(X_t | z(t), e_{t-1})."""


def replay(model: "SMCTransformer", x: Float[Tensor, "batch time_plus_1 n_inputs"], noise: Noise) -> Replay:
    """Rebuild the lines that this noise makes on these observations."""
    inputs, last_targets, targets = model.split(x)
    embedding = model.encoder(inputs).unsqueeze(1)
    latents = model.attention.latents(embedding, noise)
    z = model.attention.attend_all(latents) + model.attention.attention_covariance.scale(noise.attention)
    means = model.read_out(z, embedding, last_targets)
    return Replay(latents, z, means, model.observation.log_density(targets, means))
