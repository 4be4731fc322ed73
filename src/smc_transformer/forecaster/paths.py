"""Sampled futures of many series, and what is exact about them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.following import Follower, meet_known
from smc_transformer.forecaster.table import Name
from smc_transformer.inference.paths import NUMBERS_AT_ONCE, path_numbers, walk_paths
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import spread
from smc_transformer.predictive import VarianceParts


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
    follower: Follower,
    fleet: Fleet,
    names: Sequence[Name],
    known: Float[Tensor, "series horizon known"],
    n_paths: int,
    generator: Generator | None,
) -> Futures:
    """Draw paths from where the particles of each series stand; they stay as they are.

    Args:
        follower: the network, and how it follows series.
        fleet: the particles.
        names: the series.
        known: the known inputs of the times of the horizon.
        n_paths: paths of each series.
        generator: source of randomness.
    """
    config = follower.network.config
    held = path_numbers(follower.network, n_paths, known.shape[1] + (config.window or 64)) * config.d_model
    at_once = max(1, NUMBERS_AT_ONCE // held)
    order, found = [], []
    for numbers in fleet.groups(names):
        for start in range(0, len(numbers), at_once):
            chosen = numbers[start : start + at_once]
            order += chosen
            state = fleet.take([names[number] for number in chosen])
            found.append(_draw(follower, state, known[chosen], n_paths, generator))
    back = torch.tensor(order).argsort()

    def joined(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts))[back]

    return Futures(
        joined([one.paths for one in found]),
        joined([one.first for one in found]),
        VarianceParts(*(joined(parts) for parts in zip(*(one.parts for one in found), strict=True))),
    )


@torch.no_grad()
def _draw(
    follower: Follower,
    state: ParticleState,
    known: Float[Tensor, "batch horizon known"],
    n_paths: int,
    generator: Generator | None,
) -> Futures:
    network, settings = follower
    meet_known(network, state, known[:, 0])
    paths, _ = spread(network, settings, state, n_paths, known.shape[1], generator)
    # The known inputs of a step come before it; nothing comes after the last one.
    later = torch.cat((known[:, 1:], torch.zeros_like(known[:, :1])), dim=1)
    first, targets, between, within = None, [], [], []
    for step in walk_paths(network, paths, later, generator):
        first = step.parameters if first is None else first
        components = network.observation.components(step.parameters)
        between.append(components.mean.var(dim=1, correction=0))
        within.append(components.variance.mean(dim=1))
        targets.append(step.targets)
    assert first is not None
    parts = VarianceParts(torch.stack(between, dim=1), torch.stack(within, dim=1))
    return Futures(torch.stack(targets, dim=2), first, parts)
