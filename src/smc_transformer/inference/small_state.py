"""Particle states in little memory: fewer particles than filtered with, their keys and values in 16 bits.

Kept are n particles, drawn by weight, one in each of n equal strata of the cumulative weights, each with its whole
trajectory. From them as many particles as before are made again, each kept one an equal number of times (if n divides
it): equally weighted, and alike in what they remember until they have moved on. Nothing here is random.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from smc_transformer.inference.state import ParticleState, encoder_names, named_encoder_state
from smc_transformer.inference.step import inherit_rows
from smc_transformer.smc.genealogy import gather_trajectories
from smc_transformer.smc.resampling.base import invert_masses, one_per_stratum, probabilities
from smc_transformer.smc.weights import uniform_log_weights

LARGEST = 6e4
"""Of a number that 16 bits hold."""


def small_tensors(state: ParticleState, n_kept: int) -> dict[str, Tensor]:
    """What is kept of a state, by names, for a file."""
    middle = torch.full((len(state), 1), 0.5, dtype=torch.float64)
    kept = invert_masses(probabilities(state.log_weights), one_per_stratum(middle, n_kept))
    dense = state.dense()
    trajectories = dense.trajectories.gather(1, kept.unsqueeze(-1).expand(-1, -1, dense.capacity))
    written = (torch.arange(dense.capacity) < dense.n_slots.unsqueeze(-1))[:, None, :, None]
    halves = {}
    for name, numbers in (("keys", dense.keys), ("values", dense.values)):
        numbers = gather_trajectories(numbers, trajectories).where(written, 0)
        halves[name] = numbers.half() if bool((numbers.abs() < LARGEST).all()) else numbers
    particles = _particles(dense, kept)
    return {
        **halves,
        "last": particles.last.contiguous(),
        "position": dense.position,
        "n_slots": dense.n_slots,
        **encoder_names([tensor.contiguous() for tensor in particles.encoder_state]),
    }


def from_small_tensors(tensors: Mapping[str, Tensor], n_particles: int) -> ParticleState:
    """A state of so many particles from what was kept of one."""
    keys, values, last = tensors["keys"], tensors["values"], tensors["last"]
    batch, n_kept, n_slots = keys.shape[:3]
    if not 1 <= n_kept <= n_particles:
        raise ValueError(f"between 1 and {n_particles} particles can be kept, got {n_kept}")
    copies = (torch.arange(n_particles) % n_kept).expand(batch, -1)

    def with_room(kept: Tensor) -> Tensor:
        room = kept.new_zeros(batch, n_particles - n_kept, *kept.shape[2:], dtype=last.dtype)
        return torch.cat((kept.to(last.dtype), room), dim=1)

    state = ParticleState(
        last=last,
        log_weights=uniform_log_weights(last.new_empty(batch, n_particles)),
        informed=torch.zeros(batch, dtype=torch.bool),
        keys=with_room(keys),
        values=with_room(values),
        trajectories=copies.unsqueeze(-1).repeat(1, 1, n_slots),
        position=tensors["position"],
        n_slots=tensors["n_slots"],
        encoder_state=named_encoder_state(tensors),
        trajectories_are_own=False,
    )
    return _particles(state, copies)


def _particles(state: ParticleState, chosen: Int[Tensor, "batch chosen"]) -> ParticleState:
    """A state with the inputs and encoder states of chosen particles, where each has its own."""
    if not state.has_own_inputs:
        return state
    last = state.last.gather(1, chosen.unsqueeze(-1).expand(-1, -1, state.last.shape[-1]))
    return replace(state, last=last, encoder_state=inherit_rows(state.encoder_state, chosen))
