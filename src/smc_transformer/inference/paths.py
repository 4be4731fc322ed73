"""Forecasts: sampled paths of the future.

A forecast is a filter whose future observations are missing: each path inherits a particle's trajectory from the
history, by its weight, then draws latents and an observation at every step and goes on with that observation as its own
input. The paths are joint over steps and targets; no mean or median is ever fed back.
"""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.filter import filter_population
from smc_transformer.inference.population import Population
from smc_transformer.smc.weights import WeightCollapseError

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

NUMBERS_AT_ONCE = 2**26
"""About how many numbers a forecast holds at a time (256 MiB in float32): sequences are done in chunks."""


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
    n_past, horizon = history.shape[1], future_inputs.shape[1]
    # Noise of four kinds, keys and values of the history; keys and values of every path, and of its encoder.
    held = 6 * n_particles * n_past + 2 * (1 + model.config.encoder_layers) * n_samples * (n_past + horizon)
    at_once = max(1, NUMBERS_AT_ONCE // (held * model.config.d_model))
    paths = []
    for first in range(0, len(history), at_once):
        past, known = history[first : first + at_once], future_inputs[first : first + at_once]
        try:
            population = _at_the_end_of(model, past, n_particles, on_collapse, generator)
        except WeightCollapseError as error:
            raise WeightCollapseError(first + error.sequence, error.step) from None
        paths.append(continue_paths(population.spread(n_samples, horizon, generator)[0], known, generator))
    return torch.cat(paths)


def _at_the_end_of(
    model: "SMCTransformer",
    history: Float[Tensor, "batch past n_inputs"],
    n_particles: int,
    on_collapse: str,
    generator: Generator | None,
) -> Population:
    """The particles after a history."""
    if history.shape[1] > 1:
        return filter_population(model, history, n_particles, generator, on_collapse=on_collapse)
    state = model.encoder.start(model.observation.features(history[:, 0]))
    return Population(model, history, n_particles, capacity=0, encoder_state=state)


def continue_paths(
    population: Population, future_inputs: Float[Tensor, "batch horizon known"], generator: Generator | None
) -> Float[Tensor, "batch sample horizon n_targets"]:
    """Let every particle go its own way."""
    model = population.model
    batch, horizon, _ = future_inputs.shape
    paths = future_inputs.new_empty(batch, population.n_particles, horizon, model.config.n_targets)
    for ahead in range(horizon):
        noise = model.attention.draw_noise(batch, population.n_particles, 1, generator)
        _, parameters = population.mutate(population.embed(), noise.at(0))
        paths[:, :, ahead] = model.observation.components(parameters).sample(generator)
        known = future_inputs[:, None, ahead].expand(-1, population.n_particles, -1)
        population.receive(torch.cat((paths[:, :, ahead], known), dim=-1))
    return paths
