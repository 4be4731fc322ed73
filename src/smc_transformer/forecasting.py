"""Forecasts: sampled paths of the future.

A forecast is a filter whose future observations are missing: each path inherits a particle's line from the history,
by its weight, then draws latents and an observation at every step and goes on with that observation as its own
input. The paths are joint over steps and targets; no mean or median is ever fed back.
"""

from typing import TYPE_CHECKING

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


@torch.no_grad()
def sample_paths(
    model: "SMCTransformer",
    history: Float[Tensor, "batch past n_inputs"],
    horizon: int,
    n_samples: int,
    n_particles: int,
    future_inputs: Float[Tensor, "batch horizon known"],
    generator: Generator | None = None,
) -> Float[Tensor, "batch sample horizon n_targets"]:
    """Draw paths of the targets; see `SMCTransformer.forecast`."""
    slots = history.shape[1] + horizon
    slots = slots if model.config.window is None else min(slots, model.config.window)
    chunk = max(1, CACHE_NUMBERS_AT_ONCE // (2 * max(n_samples, n_particles) * slots * model.config.d_model))
    return torch.cat(
        [
            _sample_chunk(model, past, horizon, n_samples, n_particles, known, generator)
            for past, known in zip(history.split(chunk), future_inputs.split(chunk), strict=True)
        ]
    )


def _sample_chunk(
    model: "SMCTransformer",
    history: Float[Tensor, "batch past n_inputs"],
    horizon: int,
    n_samples: int,
    n_particles: int,
    future_inputs: Float[Tensor, "batch horizon known"],
    generator: Generator | None,
) -> Float[Tensor, "batch sample horizon n_targets"]:
    batch, n_past, _ = history.shape
    attention = model.attention
    keys, values = _inherited_cache(model, history, horizon, n_samples, n_particles, generator)
    n_inherited = keys.shape[2] - horizon

    paths = history.new_empty(batch, n_samples, horizon, model.config.n_targets)
    current = history[:, None, -1:].expand(-1, n_samples, -1, -1)
    for ahead in range(horizon):
        position = n_past - 1 + ahead
        slot = n_inherited + ahead
        embedding = model.encoder(current, start=position)
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


def _inherited_cache(
    model: "SMCTransformer",
    history: Float[Tensor, "batch past n_inputs"],
    horizon: int,
    n_samples: int,
    n_particles: int,
    generator: Generator | None,
) -> tuple[Float[Tensor, "batch sample slot d_model"], Float[Tensor, "batch sample slot d_model"]]:
    """Keys and values of lines drawn from the filter at the end of the history, with room for the horizon.

    Only slots that the first forecast step can still see are kept.
    """
    batch, n_past, _ = history.shape
    n_steps = n_past - 1
    n_kept = n_steps - model.attention.first_slot(n_steps)
    keys = history.new_empty(batch, n_samples, n_kept + horizon, model.config.d_model)
    values = torch.empty_like(keys)
    if n_kept == 0:
        return keys, values

    result = particle_filter(model, history, n_particles, generator, keep_attention=False)
    chosen = genealogy(
        result.ancestors,
        result.log_weights[:, :, -1],
        n_samples,
        RESAMPLERS[model.config.resampling],
        generator,
    )
    lines = chosen.lines[:, :, n_steps - n_kept :]
    recent = Noise(*(gather_lines(eps[:, :, n_steps - n_kept :], lines) for eps in result.noise))
    embedding = model.encoder(history[:, :-1])[:, n_steps - n_kept :].unsqueeze(1)
    latents = model.attention.latents(embedding, recent)
    keys[:, :, :n_kept] = latents.key
    values[:, :, :n_kept] = latents.value
    return keys, values
