"""Paths of the future in which some values are given: the filter goes on through the horizon, then looks back.

A value that is not given is drawn by each particle, a given one weights the particles, and the ancestral trajectories
of the last particles are paths from p(future | history, given values). Two things keep enough of them apart:

- Particles are selected on their way by a guess psi_t of how well they go with the next given values (`lookahead.py`),

      w_t = w_{t-1} p(given at t | particle) psi_t / psi_{t-1},    psi_0 = 1,    psi_t = 1 after the last given value,

  so that at the end no weight depends on the guess.
- Where the paths still descend from few particles, the filter is run again with more. A run of N particles estimates
  p(given values | history) without bias by Z; in the union of all runs, a particle of weight W has weight N Z W.
"""

import itertools
import math
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.inference.lookahead import Lookahead
from smc_transformer.inference.paths import draw_paths, sequences_at_once
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import observe_step, predict_step, spread
from smc_transformer.network import Network
from smc_transformer.nn.streams import rows_of
from smc_transformer.smc.genealogy import gather_trajectories, trace_trajectories
from smc_transformer.smc.randomness import draw_uniform
from smc_transformer.smc.weights import normalise, reweight

PILOTS = 500
"""Paths behind the guess of the way to a given value."""
MOST_RUNS = 32
"""Particles of all runs for a sequence, at most, in multiples of the number of paths."""
DRAWS_OF_A_RUN = 2**24
"""Of the streams of sequences: as many as no run takes, so that each has draws of its own."""
ESS_THRESHOLD = 0.5
"""Particles are resampled below this share of effective ones, at most: each selection costs distinct paths."""


class UnreachableError(ValueError):
    """No particle can explain the values given for a sequence, whose position in the batch is `sequence`."""

    def __init__(self, sequence: int):
        super().__init__(f"no path of sequence {sequence} can have the given values: all weights are zero")
        self.sequence = sequence


class ConditionedPaths(NamedTuple):
    """Equally likely futures in which the given values hold."""

    targets: Float[Tensor, "batch path horizon n_targets"]
    effective: Float[Tensor, "batch"]
    """How many independent paths these are worth: 1 / sum of the squared shares of the particles of the first step
    that they descend from. Later parts of the paths differ more."""
    log_density: Float[Tensor, "batch"]
    """Estimates of log p(given values | history); 0 where nothing is given."""


class _Ends(NamedTuple):
    """Particles of one or more runs of a sequence at the end of the horizon."""

    targets: Float[Tensor, "particle horizon n_targets"]
    founders: Int[Tensor, "particle"]  # the particle of the first step that each descends from
    log_weights: Float[Tensor, "particle"]  # log N Z W, with N particles in the run: not normalised


@torch.no_grad()
def conditioned_paths(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    given: Float[Tensor, "batch horizon n_targets"],
    future_inputs: Float[Tensor, "batch horizon known"],
    n_paths: int,
    generator: Generator | None,
) -> ConditionedPaths:
    """Draw paths that go on from particles, which stay as they are, and in which the given values hold.

    Args:
        network: the network.
        settings: of the inference.
        state: the particles after the history, which have the known inputs of the first step.
        given: values of the horizon; NaN where a value is not given.
        future_inputs: the inputs that are not targets, as in `draw_paths`.
        n_paths: paths of each sequence, and particles of each run.
        generator: source of randomness.
    """
    # Selection only where it must be: paths that descend from the same particle tell little about early steps.
    settings = replace(settings, ess_threshold=min(settings.ess_threshold, ESS_THRESHOLD))
    at_once = sequences_at_once(network, n_paths, given.shape[1])

    def run(rows: Int[Tensor, "row"], n_particles: int, number: int) -> list[_Ends]:
        own = rows_of(generator, rows, number * DRAWS_OF_A_RUN)
        return _run(network, settings, state.take(rows), given[rows], future_inputs[rows], n_particles, own)

    found = []
    for few in torch.arange(len(state)).split(at_once):
        for number, ends in zip(few.tolist(), run(few, n_paths, 0), strict=True):
            n_more = _runs_wanted(ends, n_paths) - 1
            larger = min(at_once, max(1, n_more))  # one large run is worth more than several small ones
            alone, n_runs = few.new_tensor([number]), -(-n_more // larger)
            more = [run(alone, larger * n_paths, 1 + place)[0] for place in range(n_runs)]
            own = rows_of(generator, alone, (1 + MOST_RUNS) * DRAWS_OF_A_RUN)
            found.append(_drawn(_union([ends, *more]), settings, n_paths, number, own))
    return ConditionedPaths(*(torch.stack(tensors) for tensors in zip(*found, strict=True)))


def _run(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    given: Float[Tensor, "row horizon n_targets"],
    future_inputs: Float[Tensor, "row horizon known"],
    n_particles: int,
    generator: Generator | None,
) -> list[_Ends]:
    """The filter through the horizon, with particles spread from a state."""
    horizon = given.shape[1]
    lookahead = None
    if not given.isnan().all():
        pilots, _ = spread(network, settings, state, PILOTS, horizon, generator)
        lookahead = Lookahead(draw_paths(network, pilots, future_inputs, generator).targets, given)
    particles, _ = spread(network, settings, state, n_particles, horizon, generator)
    log_total = given.new_zeros(len(given))
    guess = torch.zeros_like(particles.log_weights)  # log psi of the step before
    values, ancestors = [], []
    x = torch.cat((given, future_inputs), dim=-1)
    for step in range(horizon):
        prediction = predict_step(network, settings, particles, generator)
        parents = prediction.selection.ancestors
        seen = observe_step(network, settings, particles, prediction, x[:, step], generator, on_collapse="uniform")
        log_total = log_total + seen.log_increments
        if lookahead is not None:
            ahead = lookahead(step, seen.targets).expand_as(guess)
            change = ahead - guess.gather(1, parents)
            particles.log_weights, increments = reweight(
                particles.log_weights, change, step=particles.position, on_collapse="uniform"
            )
            particles.informed = particles.informed | (change != 0).any(dim=-1)
            log_total, guess = log_total + increments, ahead
        values.append(seen.targets.expand(-1, n_particles, -1))
        ancestors.append(parents)
    trajectories = trace_trajectories(torch.stack(ancestors, dim=-1))
    targets = gather_trajectories(torch.stack(values, dim=2), trajectories)
    log_weights = particles.log_weights.double() + log_total.unsqueeze(-1) + math.log(n_particles)
    return [_Ends(*row) for row in zip(targets, trajectories[:, :, 0], log_weights, strict=True)]


def _runs_wanted(ends: _Ends, n_paths: int) -> int:
    """How many runs like this one would have as many effective founders as paths are wanted."""
    log_weights, total = normalise(ends.log_weights)
    if not total.isfinite():
        return MOST_RUNS
    return min(MOST_RUNS, math.ceil(n_paths / _effective(ends.founders, log_weights.exp()) - 1e-6))


def _union(runs: list[_Ends]) -> _Ends:
    """The particles of several runs, whose founders are all different."""
    starts = [0, *itertools.accumulate(len(run.founders) for run in runs)]
    founders = [run.founders + start for run, start in zip(runs, starts, strict=False)]
    return _Ends(
        torch.cat([run.targets for run in runs]), torch.cat(founders), torch.cat([run.log_weights for run in runs])
    )


def _effective(founders: Int[Tensor, "particle"], weights: Float[Tensor, "particle"]) -> float:
    """1 / sum of the squared shares of the founders."""
    shares = weights.new_zeros(len(founders)).index_add_(0, founders, weights)
    return float(1 / shares.square().sum())


def _drawn(
    ends: _Ends, settings: InferenceSettings, n_paths: int, sequence: int, generator: Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Paths of a sequence drawn by weight, in random order; what they are worth, and the density of what is given."""
    log_weights, log_total = normalise(ends.log_weights)
    if not log_total.isfinite():
        raise UnreachableError(sequence)
    chosen = settings.resample(log_weights.unsqueeze(0), n_paths, generator)[0]
    order = draw_uniform((1, n_paths), torch.empty(0), generator)[0]
    chosen = chosen[order.argsort(stable=True)]
    shares = torch.bincount(chosen, minlength=len(log_weights)).double() / n_paths
    worth = shares.new_tensor(_effective(ends.founders, shares))
    return ends.targets[chosen], worth, log_total - math.log(len(log_weights))
