"""The state of a particle filter in the middle of its sequences, and the moves of one step: select, mutate, weight.

Whole sequences, gaps and forecasts all go through these moves; a step without an observation simply has no weight.
Keys and values are written once and never copied: resampling moves an index table, `trajectories[b, m, s]`, the
particle that holds slot s of particle m's trajectory, and attention reads through it.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.inference import engine
from smc_transformer.inference.proposals import PROPOSALS
from smc_transformer.kernels.step import PastSlots
from smc_transformer.nn.attention import Noise
from smc_transformer.nn.encoders.base import State
from smc_transformer.smc.genealogy import gather_trajectories
from smc_transformer.smc.resampling import RESAMPLERS
from smc_transformer.smc.selection import Selection, select
from smc_transformer.smc.weights import reweight, uniform_log_weights

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class Drawn(NamedTuple):
    """What the particles drew at their last step."""

    eps: Float[Tensor, "batch particle d_model"]
    """The standard noise of z."""
    z: Float[Tensor, "batch particle d_model"]
    embedding: Float[Tensor, "batch _ d_model"]


class Population:
    """Weighted particles, what they remember, and the input they saw last.

    Args:
        model: the model they belong to.
        last: the input X_t that the next step starts from: shared by all particles, or one for each.
        n_particles: particles of each sequence.
        capacity: slots to make room for; when they are used up there are more, or, if they are as many as the
            window, the oldest are used again (a ring).
        encoder_state: the encoder's state before `last`, one row for each sequence, or for each particle.
    """

    def __init__(
        self,
        model: "SMCTransformer",
        last: Float[Tensor, "batch _ n_inputs"],
        n_particles: int,
        capacity: int,
        encoder_state: State = (),
    ):
        self.model = model
        self.last = last
        self.encoder_state = encoder_state
        self.position = 0
        self.n_slots = 0
        self.past: PastSlots | None = None  # slots before the first one, shared with other particles
        batch = len(last)
        self.log_weights = uniform_log_weights(last.new_empty(batch, n_particles))
        self.informed = torch.zeros(batch, dtype=torch.bool, device=last.device)
        self.themselves = torch.arange(n_particles, device=last.device).expand(batch, n_particles)
        self.trajectories = self.themselves.new_empty(batch, n_particles, capacity)
        self.trajectories_are_own = True  # nobody has inherited yet: no need to read through the table
        self.keys = last.new_empty(batch, n_particles, capacity, model.config.d_model)
        self.values = torch.empty_like(self.keys)

    @property
    def capacity(self) -> int:
        """Slots there is room for."""
        return self.trajectories.shape[-1]

    @property
    def n_particles(self) -> int:
        """Particles of each sequence."""
        return self.log_weights.shape[1]

    def select(
        self, generator: Generator | None, look_ahead: Float[Tensor, "batch particle"] | None = None
    ) -> Selection:
        """Resample the sequences that are due; their particles inherit trajectories, inputs and encoder states."""
        selection = select(
            self.log_weights,
            RESAMPLERS[self.model.config.resampling],
            ess_threshold=self.model.config.ess_threshold,
            informed=self.informed,
            look_ahead=look_ahead,
            generator=generator,
        )
        self.log_weights = selection.log_weights
        self.informed = self.informed & ~selection.resampled
        self.trajectories_are_own = self.trajectories_are_own and not bool(selection.resampled.any())
        held = slice(self.model.attention.first_slot(self.n_slots), self.n_slots)
        if self.n_slots > self.capacity:
            held = slice(0, self.capacity)
        engine.inherit_trajectories(self.trajectories, selection.ancestors, held, self.keys)
        if self.last.shape[1] > 1:
            index = selection.ancestors.unsqueeze(-1).expand(-1, -1, self.last.shape[-1])
            self.last = self.last.gather(1, index)
            self.encoder_state = inherit_rows(self.encoder_state, selection.ancestors)
        return selection

    def receive(self, last: Float[Tensor, "batch _ n_inputs"]) -> None:
        """Take the input that the next step starts from: the same for all particles, or one for each."""
        batch, n_own = last.shape[:2]
        if n_own > 1 and self.encoder_state and len(self.encoder_state[0]) == batch:
            # From here on particles differ in what they saw: each needs an encoder state of its own.
            self.encoder_state = tuple(tensor.repeat_interleave(n_own, dim=0) for tensor in self.encoder_state)
        self.last = last

    def embed(self) -> Float[Tensor, "batch _ d_model"]:
        """The embedding of the last input, one for each sequence or particle."""
        features = self.model.observation.features(self.last.flatten(0, 1))
        embedding, self.encoder_state = self.model.encoder.step(features, self.encoder_state, self.position)
        return embedding.unflatten(0, self.last.shape[:2])

    def mutate(
        self, embedding: Float[Tensor, "batch _ d_model"], noise: Noise
    ) -> tuple[Float[Tensor, "batch particle d_model"], Float[Tensor, "batch particle n_parameters"]]:
        """Draw the latents of the next slot; returns the attention vector and the parameters of p(X_t | z).

        Args:
            embedding: e_{t-1}.
            noise: standard noise of this step, (batch, particle, d_model).
        """
        in_c = engine.can_step(self.model, embedding)
        if self.past is not None and not in_c:
            self._copy_past(self.past)
        self._make_room()
        slot = self.n_slots % self.capacity
        window, past_first = slice(0, self.capacity), 0
        if self.n_slots < self.capacity:
            n_past = 0 if self.past is None else self.past.trajectories.shape[-1]
            first = self.model.attention.first_slot(n_past + slot)
            window, past_first = slice(max(0, first - n_past), slot + 1), min(first, n_past)
        self.n_slots += 1
        self.position += 1
        if in_c:
            caches = (self.keys, self.values, self.trajectories)
            z, outputs = engine.run_step(self.model, embedding, noise, *caches, slot, window, self.past, past_first)
        else:
            z, outputs = self._mutate_in_torch(embedding, noise, slot, window), None
        self.drawn = Drawn(noise.attention, z, embedding)
        return z, self.model.read_out(z, embedding, self.last[..., : self.model.config.n_targets], outputs)

    def peek(
        self, embedding: Float[Tensor, "batch _ d_model"], noise: Noise
    ) -> tuple[Float[Tensor, "batch particle d_model"], Float[Tensor, "batch particle n_parameters"]]:
        """What `mutate` would return, without going on: the slot it writes is written again by the next mutation."""
        n_slots, position = self.n_slots, self.position
        found = self.mutate(embedding, noise)
        self.n_slots, self.position = n_slots, position
        return found

    def _mutate_in_torch(
        self, embedding: Float[Tensor, "batch _ d_model"], noise: Noise, slot: int, window: slice
    ) -> Float[Tensor, "batch particle d_model"]:
        """The attention vectors of the next slot, in plain torch: the reference of the kernels."""
        attention = self.model.attention
        latents = attention.latents(embedding, noise)
        self.keys[:, :, slot] = latents.key
        self.values[:, :, slot] = latents.value
        self.trajectories[:, :, slot] = self.themselves
        keys, values = self.keys[:, :, window], self.values[:, :, window]
        if not self.trajectories_are_own:
            trajectories = self.trajectories[:, :, window]
            keys, values = gather_trajectories(keys, trajectories), gather_trajectories(values, trajectories)
        return attention.attend_one(latents.query, keys, values) + attention.deviation(noise)

    def stand_at_end(
        self, last: Float[Tensor, "batch 1 n_inputs"], log_weights: Float[Tensor, "batch particle"]
    ) -> None:
        """Take the state after all steps of a filter that has filled the caches to their capacity."""
        self.last, self.log_weights = last, log_weights
        self.position = self.n_slots = self.capacity
        self.informed = torch.ones_like(self.informed)
        self.trajectories_are_own = False

    def absorb(
        self,
        parameters: Float[Tensor, "batch particle n_parameters"],
        x: Float[Tensor, "batch n_inputs"],
        observed: Bool[Tensor, "batch n_targets"] | None,
        on_collapse: str,
        generator: Generator | None,
    ) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch _ n_targets"]]:
        """Weight by what is observed of X_t, draw what is missing, and take the result as the next input.

        Args:
            parameters: parameters of the distribution of X_t, from `mutate`.
            x: X_t.
            observed: which targets are observed; None: all.
            on_collapse: what to do when no particle can explain X_t.
            generator: source of randomness for what is missing.

        Returns:
            The log-likelihood increments, and the targets: shared, or as completed by each particle.
        """
        n_targets = self.model.config.n_targets
        targets = x[:, None, :n_targets]
        increments = x.new_zeros(len(x))
        log_correction = None
        if observed is None:
            proposed = PROPOSALS[self.model.config.proposal].propose(self, parameters, x[:, :n_targets], generator)
            if proposed is not None:
                self.drawn = Drawn(proposed.eps, proposed.z, self.drawn.embedding)
                parameters, log_correction = proposed.parameters, proposed.log_correction
        self.read_outs = parameters
        if observed is None or observed.any():
            increments = self.weigh(parameters, x[:, :n_targets], observed, on_collapse, log_correction)
        if observed is not None:
            targets = self.model.observation.components(parameters).complete(targets, observed.unsqueeze(1), generator)
        n_own = max(targets.shape[1], self.last.shape[1])  # once particles differ, they differ for good
        known = x[:, None, n_targets:].expand(-1, n_own, -1)
        self.receive(torch.cat((targets.expand(-1, n_own, -1), known), dim=-1))
        return increments, targets

    def weigh(
        self,
        parameters: Float[Tensor, "batch particle n_parameters"],
        target: Float[Tensor, "batch n_targets"],
        observed: Bool[Tensor, "batch n_targets"] | None,
        on_collapse: str,
        log_correction: Float[Tensor, "batch particle"] | None = None,
    ) -> Float[Tensor, "batch"]:
        """Weight by the observed coordinates of X_t (None: all); returns the log-likelihood increments."""
        mask = None if observed is None else observed.unsqueeze(1)
        log_density = self.model.observation.components(parameters).log_prob(target.unsqueeze(1), mask)
        if log_correction is not None:
            log_density = log_density + log_correction
        log_weights, increments = reweight(self.log_weights, log_density, step=self.position, on_collapse=on_collapse)
        if observed is None:
            self.log_weights, self.informed = log_weights, torch.ones_like(self.informed)
            return increments
        seen = observed.any(dim=-1)
        self.log_weights = torch.where(seen.unsqueeze(-1), log_weights, self.log_weights)
        self.informed = self.informed | seen
        return torch.where(seen, increments, 0.0)

    def spread(
        self, n_samples: int, capacity: int, generator: Generator | None
    ) -> tuple["Population", Int[Tensor, "batch sample"]]:
        """A new population of equally weighted particles drawn from this one, with trajectories of their own.

        Only the slots that the next step can see are kept; `capacity` more fit in. Also returns who was drawn.
        """
        ends = RESAMPLERS[self.model.config.resampling](self.log_weights, n_samples, generator)
        # Most schemes return sorted indices: shuffled, any few of the new particles are a sample too.
        order = torch.rand(ends.shape, generator=generator, device=ends.device).argsort(dim=-1)
        ends = ends.gather(1, order)
        own = self.last.shape[1] > 1
        last = self.last.gather(1, ends.unsqueeze(-1).expand(-1, -1, self.last.shape[-1])) if own else self.last
        state = inherit_rows(self.encoder_state, ends) if own else self.encoder_state
        first = self.model.attention.first_slot(self.n_slots)
        kept = torch.arange(first, self.n_slots, device=ends.device) % max(1, self.capacity)
        fresh = Population(self.model, last, n_samples, capacity, state)
        fresh.position = self.position
        if len(kept):
            fresh.past = PastSlots(self.keys[:, :, kept], self.values[:, :, kept], self.trajectories[:, :, kept], ends)
        return fresh, ends

    def _copy_past(self, past: PastSlots) -> None:
        """Make the shared past slots of one's own: torch is better off with copies."""
        index = past.parents.unsqueeze(-1).expand(-1, -1, past.trajectories.shape[-1])
        of_parents = past.trajectories.gather(1, index)
        own = self.themselves.unsqueeze(-1).expand(-1, -1, past.trajectories.shape[-1])
        self.keys = torch.cat((gather_trajectories(past.keys, of_parents), self.keys), dim=2)
        self.values = torch.cat((gather_trajectories(past.values, of_parents), self.values), dim=2)
        self.trajectories = torch.cat((own, self.trajectories), dim=2)
        self.n_slots += past.trajectories.shape[-1]
        self.past = None

    def _make_room(self) -> None:
        """Double the capacity when it is used up; with a window as long as the capacity, slots are used again."""
        if self.n_slots < self.capacity or self.capacity == self.model.config.window:
            return
        more = max(16, self.capacity)
        for name in ("trajectories", "keys", "values"):
            old = getattr(self, name)
            setattr(self, name, torch.cat((old, old.new_empty(*old.shape[:2], more, *old.shape[3:])), dim=2))


def inherit_rows(state: State, ancestors: Tensor) -> State:
    """Encoder states, one row for each particle, taken from the particles' parents."""
    batch = len(ancestors)
    if not state:
        return state
    n_parents = len(state[0]) // batch
    rows = (ancestors + n_parents * torch.arange(batch, device=ancestors.device).unsqueeze(-1)).flatten()
    return tuple(tensor[rows] for tensor in state)
