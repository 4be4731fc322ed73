"""Sampled futures of many series, and what is exact about them; with or without values that are given."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.following import Follower, meet_known
from smc_transformer.forecaster.table import Name, TableError
from smc_transformer.inference import engine
from smc_transformer.inference.conditioned_paths import ConditionedPaths, UnreachableError, conditioned_paths
from smc_transformer.inference.paths import check_paths, draw_paths, sequences_at_once
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import spread
from smc_transformer.kernels import threads_for_kernels
from smc_transformer.nn.streams import in_stage, rows_of


class Futures(NamedTuple):
    """Joint paths of series, in the model's units; the variance of each step is split into two parts."""

    paths: Float[Tensor, "series path horizon n_targets"]  # equally likely
    first: Float[Tensor, "series path n_parameters"]  # of the first step: their mixture is its exact distribution
    between: Float[Tensor, "series horizon n_targets"]  # what differs between paths before the step is drawn
    within: Float[Tensor, "series horizon n_targets"]  # the noise of the step


@torch.no_grad()
@threads_for_kernels()
def draw_futures(
    follower: Follower,
    fleet: Fleet,
    names: Sequence[Name],
    known: Float[Tensor, "series horizon known"],
    n_paths: int,
    generator: Generator | None,
) -> Futures:
    """Draw paths of each series with its known inputs, from its particles, which stay as they are."""
    network, settings = follower
    order, found = [], []
    horizon = known.shape[1]
    in_c = engine.can_draw_paths(network, known, generator) and engine.can_seed_paths(network, known)
    at_once = sequences_at_once(network, n_paths, horizon, made_in_c=in_c)
    for chosen, state, later in _parts(follower, fleet, names, known, n_paths, at_once):
        order += chosen
        own = in_stage(rows_of(generator, chosen), 0, state.position)
        # C keeps keys and values of its own; a state makes room for more as they come.
        paths, _ = spread(network, settings, state, n_paths, 1 if in_c else horizon, own)
        targets, parameters = draw_paths(network, paths, later, own)
        components = network.observation.components(parameters)
        between, within = _moments(components.mean, components.variance)
        found.append(Futures(targets, parameters[:, :, 0], between, within))
    back = torch.tensor(order).argsort()
    return Futures(*(torch.cat(parts)[back] for parts in zip(*found, strict=True)))


@torch.no_grad()
def draw_scenario(
    follower: Follower,
    fleet: Fleet,
    names: Sequence[Name],
    known: Float[Tensor, "series horizon known"],
    given: Float[Tensor, "series horizon n_targets"],
    n_paths: int,
    generator: Generator | None,
) -> ConditionedPaths:
    """The same with values that are given (NaN: not given), in the model's units."""
    network, order, found = follower.network, [], []
    at_once = sequences_at_once(network, n_paths, known.shape[1])
    for chosen, state, later in _parts(follower, fleet, names, known, n_paths, at_once):
        order += chosen
        try:
            own = in_stage(rows_of(generator, chosen), 0, state.position)
            found.append(conditioned_paths(*follower, state, given[chosen], later, n_paths, own))
        except UnreachableError as error:
            name = names[chosen[error.sequence]]
            raise TableError(f"no path of series {name!r} can have the values given: their density is 0") from None
    back = torch.tensor(order).argsort()
    return ConditionedPaths(*(torch.cat(parts)[back] for parts in zip(*found, strict=True)))


def _moments(
    mean: Float[Tensor, "series path horizon n_targets"], variance: Float[Tensor, "series path horizon n_targets"]
) -> tuple[Float[Tensor, "series horizon n_targets"], Float[Tensor, "series horizon n_targets"]]:
    """The variance of the means over paths, and the mean of the variances: series by series.

    A sum over a batch may be taken in another order for another batch.
    """
    between = [one.var(dim=0, correction=0) for one in mean]
    within = [one.mean(dim=0) for one in variance.expand_as(mean)]
    return torch.stack(between), torch.stack(within)


def _parts(
    follower: Follower,
    fleet: Fleet,
    names: Sequence[Name],
    known: Float[Tensor, "series horizon known"],
    n_paths: int,
    at_once: int,
) -> Iterator[tuple[list[int], ParticleState, Float[Tensor, "part horizon known"]]]:
    """Series that are drawn together: their numbers, a copy of their particles, and the inputs after each step."""
    network = follower.network
    check_paths(network, len(names), n_paths, known.shape[1])
    # The known inputs of a step come before it; nothing comes after the last one.
    later = torch.cat((known[:, 1:], torch.zeros_like(known[:, :1])), dim=1)
    for numbers in fleet.groups(names):
        for start in range(0, len(numbers), at_once):
            chosen = numbers[start : start + at_once]
            state = fleet.take([names[number] for number in chosen])
            meet_known(network, state, known[chosen, 0])
            yield chosen, state, later[chosen]
