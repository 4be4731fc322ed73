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


class Futures(NamedTuple):
    """Joint paths of series, in the model's units; the variance of each step is split into two parts."""

    paths: Float[Tensor, "series path horizon n_targets"]  # equally likely
    first: Float[Tensor, "series path n_parameters"]  # of the first step: their mixture is its exact distribution
    between: Float[Tensor, "series horizon n_targets"]  # what differs between paths before the step is drawn
    within: Float[Tensor, "series horizon n_targets"]  # the noise of the step


def draw_futures(
    follower: Follower,
    fleet: Fleet,
    names: Sequence[Name],
    known: Float[Tensor, "series horizon known"],
    n_paths: int,
    generator: Generator | None,
) -> Futures:
    """Draw paths of each series from where its particles stand, which stay as they are, with its known inputs."""
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
    return Futures(*(torch.cat(parts)[back] for parts in zip(*found, strict=True)))


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
    steps = list(walk_paths(network, paths, later, generator))
    components = [network.observation.components(step.parameters) for step in steps]
    return Futures(
        torch.stack([step.targets for step in steps], dim=2),
        steps[0].parameters,
        torch.stack([one.mean.var(dim=1, correction=0) for one in components], dim=1),
        torch.stack([one.variance.mean(dim=1) for one in components], dim=1),
    )
