"""Forecasts: sampled paths of the future.

A forecast is a filter whose future observations are missing: each path inherits a particle's line from the history,
by its weight, then draws latents and an observation at every step and goes on with that observation as its own
input. The paths are joint over steps and targets; no mean or median is ever fed back.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.filtering import particle_filter
from smc_transformer.nn.attention import Noise
from smc_transformer.smc.genealogy import gather_lines
from smc_transformer.smc.resampling import RESAMPLERS
from smc_transformer.smc.smoothing import genealogy

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

CACHE_NUMBERS_AT_ONCE = 2**26
"""How many cached keys and values are held at a time (256 MiB in float32): sequences are done in chunks."""


class Cache(NamedTuple):
    """Keys and values of each path's own line."""

    keys: Float[Tensor, "batch sample slot d_model"]
    values: Float[Tensor, "batch sample slot d_model"]


@torch.no_grad()
def sample_paths(
    model: "SMCTransformer",
    history: Float[Tensor, "batch past n_inputs"],
    future_inputs: Float[Tensor, "batch horizon known"],
    *,
    n_samples: int,
    n_particles: int,
    on_collapse: str = "error",
    generator: Generator | None = None,
) -> Float[Tensor, "batch sample horizon n_targets"]:
    """Draw paths of the targets; see `SMCTransformer.forecast`."""
    slots = history.shape[1] + future_inputs.shape[1]
    slots = slots if model.config.window is None else min(slots, model.config.window)
    chunk = max(1, CACHE_NUMBERS_AT_ONCE // (2 * max(n_samples, n_particles) * slots * model.config.d_model))
    paths = []
    for past, known in zip(history.split(chunk), future_inputs.split(chunk), strict=True):
        inherited = _inherit(model, past, n_samples, n_particles, on_collapse, generator)
        paths.append(_continue(model, past[:, -1], past.shape[1] - 1, inherited, known, generator))
    return torch.cat(paths)


def _inherit(
    model: "SMCTransformer",
    history: Float[Tensor, "batch past n_inputs"],
    n_samples: int,
    n_particles: int,
    on_collapse: str,
    generator: Generator | None,
) -> Cache:
    """Filter the history, draw lines by their weights, and rebuild the slots that the next step will see."""
    n_steps = history.shape[1] - 1
    first = model.attention.first_slot(n_steps)
    if first == n_steps:  # no history, or a window that sees none of it
        nothing = history.new_empty(len(history), n_samples, 0, model.config.d_model)
        return Cache(nothing, nothing)
    result = particle_filter(model, history, n_particles, generator, on_collapse=on_collapse, keep_attention=False)
    final_log_weights = result.log_weights[:, :, -1]
    resample = RESAMPLERS[model.config.resampling]
    lines = genealogy(result.ancestors, final_log_weights, n_samples, resample, generator).lines[:, :, first:]
    noise = Noise(*(gather_lines(eps[:, :, first:], lines) for eps in result.noise))
    embedding = model.encoder(history[:, :-1])[:, first:].unsqueeze(1)
    latents = model.attention.latents(embedding, noise)
    return Cache(latents.key, latents.value)


def _continue(
    model: "SMCTransformer",
    last: Float[Tensor, "batch n_inputs"],
    position: int,
    inherited: Cache,
    future_inputs: Float[Tensor, "batch horizon known"],
    generator: Generator | None,
) -> Float[Tensor, "batch sample horizon n_targets"]:
    """Sample on from the last observation, which stands at `position`, along the inherited lines."""
    attention = model.attention
    batch, n_samples, n_inherited, d_model = inherited.keys.shape
    horizon = future_inputs.shape[1]
    room = last.new_empty(batch, n_samples, horizon, d_model)
    keys = torch.cat((inherited.keys, room), dim=2)
    values = torch.cat((inherited.values, room), dim=2)

    paths = last.new_empty(batch, n_samples, horizon, model.config.n_targets)
    current = last[:, None, None].expand(-1, n_samples, -1, -1)
    for ahead in range(horizon):
        slot = n_inherited + ahead
        embedding = model.encoder(current, start=position + ahead)
        noise = attention.draw_noise(batch, n_samples, 1, generator)
        latents = attention.latents(embedding, noise)
        keys[:, :, slot] = latents.key[:, :, 0]
        values[:, :, slot] = latents.value[:, :, 0]

        window = slice(attention.first_slot(slot), slot + 1)
        z = attention.attend_one(latents.query[:, :, 0], keys[:, :, window], values[:, :, window])
        z = z + attention.attention_covariance.scale(noise.attention[:, :, 0])
        mean = model.read_out(z, embedding[:, :, 0], current[:, :, 0, : model.config.n_targets])
        paths[:, :, ahead] = model.observation.sample(mean, generator)

        known = future_inputs[:, None, ahead].expand(-1, n_samples, -1)
        current = torch.cat((paths[:, :, ahead], known), dim=-1).unsqueeze(2)
    return paths
