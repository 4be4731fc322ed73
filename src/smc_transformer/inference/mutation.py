"""The mutation of particles: the latents of the next slot, in C, in torch, and as a differentiable function."""

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.inference import compiled, engine
from smc_transformer.inference.state import Moved, ParticleState
from smc_transformer.kernels.step import PastSlots
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise
from smc_transformer.smc.genealogy import gather_trajectories


def mutate(network: Network, state: ParticleState, embedding: Float[Tensor, "batch _ d_model"], noise: Noise) -> Moved:
    """Draw the latents of the next slot, attend over the window, and read out the parameters of p(X_t | z).

    With gradients, what the particles remember is never written over: every step makes it anew, one slot longer.

    Args:
        network: the network.
        state: the particles.
        embedding: e_{t-1}.
        noise: standard noise of this step, (batch, particle, d_model).
    """
    in_c, outputs = engine.can_step(network, embedding), None
    if torch.is_grad_enabled():
        z = _mutate_with_gradients(network, state, embedding, noise)
    elif in_c:
        make_room(network, state)
        caches = (state.keys, state.values, state.trajectories)
        z, outputs = compiled.run_step(network, embedding, noise, *caches, state.n_slots, state.past, state.held)
    else:
        if state.held is not None:
            dense = state.dense()
            state.keys, state.values, state.held = dense.keys, dense.values, None
        z = mutate_in_torch(network, state, embedding, noise)
    state.n_slots, state.position = state.n_slots + 1, state.position + 1
    parameters = network.read_out(z, embedding, state.last[..., : network.config.n_targets], outputs)
    return Moved(noise.attention, z, embedding, parameters)


def peek(network: Network, state: ParticleState, embedding: Float[Tensor, "batch _ d_model"], noise: Noise) -> Moved:
    """What `mutate` would return, without going on: the slot it writes is written again by the next mutation."""
    n_slots, position = state.n_slots, state.position
    found = mutate(network, state, embedding, noise)
    state.n_slots, state.position = n_slots, position
    return found


def make_room(network: Network, state: ParticleState) -> None:
    """Double the capacity if a sequence has used it up, unless the slots are a ring."""
    if state.capacity == network.config.window or max(state.n_slots.tolist()) < state.capacity:
        return
    more = max(16, state.capacity)

    def longer(old: Tensor) -> Tensor:
        return torch.cat((old, old.new_zeros(*old.shape[:2], more, *old.shape[3:])), dim=2)

    state.keys, state.values = longer(state.keys), longer(state.values)
    state.trajectories = longer(state.trajectories)


def mutate_in_torch(
    network: Network,
    state: ParticleState,
    embedding: Float[Tensor, "batch _ d_model"],
    noise: Noise,
) -> Float[Tensor, "batch particle d_model"]:
    """The attention vectors of the next slot, in plain torch: the reference of the kernels."""
    if state.past is not None:
        _copy_past(state, state.past)
    make_room(network, state)
    attention, n_slots = network.attention, state.n_slots
    latents = attention.latents(embedding, noise)
    written = (torch.arange(len(state)), slice(None), n_slots % state.capacity)
    state.keys[written], state.values[written], state.trajectories[written] = *latents[1:], state.themselves
    is_full = n_slots >= state.capacity  # a ring, of which all slots are seen
    first = (n_slots - attention.n_earlier(n_slots)).masked_fill(is_full, 0)
    last = (n_slots + 1).clamp(max=state.capacity)
    window = slice(int(first.min()), int(last.max()))
    slots = torch.arange(window.start, window.stop)
    seen = (slots >= first.unsqueeze(-1)) & (slots < last.unsqueeze(-1))
    keys, values = state.keys[:, :, window], state.values[:, :, window]
    if not state.trajectories_are_own:
        trajectories = state.trajectories[:, :, window]
        keys, values = gather_trajectories(keys, trajectories), gather_trajectories(values, trajectories)
    differing = () if seen.all() else (seen,)
    return attention.attend_one(latents.query, keys, values, *differing) + attention.deviation(noise)


def _mutate_with_gradients(
    network: Network, state: ParticleState, embedding: Float[Tensor, "batch _ d_model"], noise: Noise
) -> Float[Tensor, "batch particle d_model"]:
    """The same as a differentiable function, for particles that are never resampled: forecast paths."""
    attention = network.attention
    latents = attention.latents(embedding, noise)
    first = attention.first_slot(state.capacity)
    state.keys = torch.cat((state.keys[:, :, first:], latents.key.unsqueeze(2)), dim=2)
    state.values = torch.cat((state.values[:, :, first:], latents.value.unsqueeze(2)), dim=2)
    state.trajectories = state.themselves.unsqueeze(-1).expand(-1, -1, state.keys.shape[2])
    return attention.attend_one(latents.query, state.keys, state.values) + attention.deviation(noise)


def _copy_past(state: ParticleState, past: PastSlots) -> None:
    """Copy the shared past slots to each particle: torch attends over one tensor of keys."""
    n_past = past.trajectories.shape[-1]
    of_parents = past.trajectories.gather(1, past.parents.unsqueeze(-1).expand(-1, -1, n_past))
    own = state.themselves.unsqueeze(-1).expand_as(of_parents)
    state.keys = torch.cat((gather_trajectories(past.keys, of_parents), state.keys), dim=2)
    state.values = torch.cat((gather_trajectories(past.values, of_parents), state.values), dim=2)
    state.trajectories = torch.cat((own, state.trajectories), dim=2)
    # A sequence with fewer past slots than others moves its own up to them.
    missing, slots = (n_past - past.n_slots).unsqueeze(-1), torch.arange(state.capacity).expand(len(state), -1)
    moved = (slots + missing).clamp(max=state.capacity - 1)
    state.keys, state.values, state.trajectories = state.at(slots.where(slots < n_past - missing, moved))
    state.n_slots, state.past = state.n_slots + past.n_slots, None
