"""Sampled futures of many series, and what is exact about them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.forecaster.following import join, meet_known, standing
from smc_transformer.inference.population import Population
from smc_transformer.predictive import VarianceParts

NUMBERS_AT_ONCE = 2**26
"""About how many numbers the paths hold at a time (256 MiB): series are done in chunks."""


class Futures(NamedTuple):
    """Joint paths of series, in the model's units.

    Attributes:
        paths: equally likely futures.
        first: parameters of the distribution of the first step, for each path: their mixture is the exact one-step
            distribution.
        parts: the variance of each step, split into what differs between paths before the step is drawn and the noise
            of the step.
    """

    paths: Float[Tensor, "series path horizon n_targets"]
    first: Float[Tensor, "series path n_parameters"]
    parts: VarianceParts


def draw_futures(
    populations: Sequence[Population],
    known: Float[Tensor, "series horizon known"],
    n_paths: int,
    generator: Generator | None,
) -> Futures:
    """Draw paths from where the particles of each series stand; they stay as they are.

    Args:
        populations: the particles of each series.
        known: the known inputs of the times of the horizon.
        n_paths: paths of each series.
        generator: source of randomness.
    """
    config = populations[0].model.config
    held = 2 * (1 + config.encoder_layers) * n_paths * (known.shape[1] + (config.window or 64)) * config.d_model
    at_once = max(1, NUMBERS_AT_ONCE // held)
    alike: dict[tuple[int, int, int, bool], list[int]] = {}
    for number, population in enumerate(populations):
        alike.setdefault(standing(population), []).append(number)
    done: dict[int, Futures] = {}
    for numbers in alike.values():
        for start in range(0, len(numbers), at_once):
            chosen = numbers[start : start + at_once]
            found = _draw(join([populations[number] for number in chosen]), known[chosen], n_paths, generator)
            for place, number in enumerate(chosen):
                parts = VarianceParts(*(part[place] for part in found.parts))
                done[number] = Futures(found.paths[place], found.first[place], parts)
    ordered = [done[number] for number in range(len(populations))]
    return Futures(
        torch.stack([one.paths for one in ordered]),
        torch.stack([one.first for one in ordered]),
        VarianceParts(*(torch.stack(parts) for parts in zip(*(one.parts for one in ordered), strict=True))),
    )


@torch.no_grad()
def _draw(
    population: Population, known: Float[Tensor, "batch horizon known"], n_paths: int, generator: Generator | None
) -> Futures:
    model = population.model
    batch, horizon, _ = known.shape
    meet_known(population, known[:, 0])
    fresh, _ = population.spread(n_paths, horizon, generator)
    paths = known.new_empty(batch, n_paths, horizon, model.config.n_targets)
    between, within = (known.new_empty(batch, horizon, model.config.n_targets) for _ in range(2))
    first = known.new_empty(0)
    for ahead in range(horizon):
        noise = model.attention.draw_noise(batch, n_paths, 1, generator).at(0)
        _, parameters = fresh.mutate(fresh.embed(), noise)
        first = parameters if ahead == 0 else first
        distribution = model.observation.components(parameters)
        between[:, ahead] = distribution.mean.var(dim=1, correction=0)
        within[:, ahead] = distribution.variance.mean(dim=1)
        paths[:, :, ahead] = distribution.sample(generator)
        if ahead + 1 < horizon:
            next_known = known[:, None, ahead + 1].expand(-1, n_paths, -1)
            fresh.receive(torch.cat((paths[:, :, ahead], next_known), dim=-1))
    return Futures(paths, first, VarianceParts(between, within))
