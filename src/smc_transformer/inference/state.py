"""The particles of many sequences between two observations: plain tensors, one row for each sequence.

Keys and values are written once and never copied: resampling moves an index table, `trajectories[b, m, s]`, the
particle that holds slot s of particle m's trajectory, and attention reads through it. With a window the slots are a
ring: when all are used, the oldest is written again. `step.py` has the functions that move a state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smc_transformer.kernels.step import PastSlots
from smc_transformer.network import Network
from smc_transformer.nn.encoders.base import State

FARTHEST = 2**48
"""Of a clock: steps that a sequence may have taken. No stream gets there, and C can go on counting from it."""


class Moved(NamedTuple):
    """What particles drew when they moved on."""

    eps: Float[Tensor, "batch particle d_model"]
    """The standard noise of z."""
    z: Float[Tensor, "batch particle d_model"]
    embedding: Float[Tensor, "batch _ d_model"]
    parameters: Float[Tensor, "batch particle n_parameters"]
    """Parameters of p(X_t | z)."""


@dataclass
class ParticleState:
    """Weighted particles, what they remember, and the input they saw last.

    Attributes:
        last: the input X_t that the next step starts from: shared by all particles, or one for each.
        log_weights: normalised log-weights.
        informed: whether the weights have changed since the particles were last resampled.
        keys: keys of the slots that can still be seen.
        values: their values.
        trajectories: the particle that holds each slot of each particle's trajectory.
        position: how many inputs the encoder has seen.
        n_slots: how many slots have been written, those written over included. Each sequence has a clock of its own:
            rows that have seen more or less of theirs take a step together.
        encoder_state: the encoder's state before `last`, a row for each sequence, or for each particle if each has an
            input of its own.
        trajectories_are_own: whether nobody has inherited yet, so that keys and values need not be read through the
            table.
        past: slots before the first one, shared with other particles (of forecast paths).
        held: where the keys and values of each sequence are, if they are among those of others (`lend`); None: in the
            order of the sequences. Of such a state nothing is taken, but it can take a step.
        follow_block: what C has found of this state (`follow.py`); of this object in this process, so no copy has it.
    """

    last: Float[Tensor, "batch _ n_inputs"]
    log_weights: Float[Tensor, "batch particle"]
    informed: Bool[Tensor, "batch"]
    keys: Float[Tensor, "held particle slot d_model"]
    values: Float[Tensor, "held particle slot d_model"]
    trajectories: Int[Tensor, "batch particle slot"]
    position: Int[Tensor, "batch"]
    n_slots: Int[Tensor, "batch"]
    encoder_state: State = ()
    trajectories_are_own: bool = True
    past: PastSlots | None = None
    held: Int[Tensor, "batch"] | None = None
    follow_block: Any = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        """Sequences."""
        return len(self.log_weights)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "follow_block": None}

    @property
    def n_particles(self) -> int:
        """Particles of each sequence."""
        return self.log_weights.shape[1]

    @property
    def capacity(self) -> int:
        """Slots there is room for."""
        return self.trajectories.shape[-1]

    @property
    def has_own_inputs(self) -> bool:
        """Whether each particle has an input of its own, since values were missing and drawn."""
        return self.last.shape[1] > 1

    @property
    def themselves(self) -> Int[Tensor, "batch particle"]:
        """The particles' own numbers."""
        return torch.arange(self.n_particles, device=self.last.device).expand(len(self), -1)

    @property
    def layout(self) -> tuple[Any, ...]:
        """The shapes and types of a row: rows of the same layout can be in one state."""
        return tuple((tuple(rows.shape[1:]), rows.dtype) for rows in self._rows().values())

    def take(self, rows: slice | Int[Tensor, "row"]) -> "ParticleState":
        """Some rows as a state: in memory of its own, or with a slice in shared memory."""
        return self._with_rows({name: tensor[rows] for name, tensor in self._rows().items()})

    def put(self, rows: Int[Tensor, "row"], other: "ParticleState") -> None:
        """Replace rows by those of a state of the same layout, in place."""
        ours, theirs = self._rows(), other._rows()
        for name, tensor in ours.items():
            tensor[rows] = theirs[name]
        self.trajectories_are_own = self.trajectories_are_own and other.trajectories_are_own

    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that the kernels read or write, as they are."""
        counters = (self.informed, self.position, self.n_slots)
        return (self.last, self.log_weights, self.keys, self.values, self.trajectories, *counters, *self.encoder_state)

    def make_contiguous(self) -> None:
        """In memory as C reads it: a filter leaves views of what it made for all steps."""
        self.last, self.log_weights = self.last.contiguous(), self.log_weights.contiguous()
        self.keys, self.values = self.keys.contiguous(), self.values.contiguous()
        self.trajectories, self.informed = self.trajectories.contiguous(), self.informed.contiguous()
        self.position, self.n_slots = self.position.contiguous(), self.n_slots.contiguous()
        self.encoder_state = tuple(part.contiguous() for part in self.encoder_state)

    def lend(self, rows: Int[Tensor, "row"]) -> "ParticleState":
        """Some rows as a state, of which keys and values, nearly all of it, stay where they are.

        The slots must be a ring. A step writes over the oldest slot, which no later step can see: until the rows are
        given back, this state is as it was, and after an error nothing is lost.
        """
        self.make_contiguous()  # so that nobody copies what is lent
        n_own = len(self.encoder_state[0]) // len(self) if self.encoder_state else 1
        encoder_rows = rows
        if n_own > 1:
            encoder_rows = (rows.unsqueeze(-1) * n_own + torch.arange(n_own)).flatten()
        # Field by field: for one row, going through names takes longer than copying it.
        return ParticleState(
            last=self.last.index_select(0, rows),
            log_weights=self.log_weights.index_select(0, rows),
            informed=self.informed.index_select(0, rows),
            keys=self.keys,
            values=self.values,
            trajectories=self.trajectories.index_select(0, rows),
            position=self.position.index_select(0, rows),
            n_slots=self.n_slots.index_select(0, rows),
            encoder_state=tuple(tensor.index_select(0, encoder_rows) for tensor in self.encoder_state),
            trajectories_are_own=self.trajectories_are_own,
            held=rows,
        )

    def give_back(self, other: "ParticleState") -> None:
        """Take back rows that were lent, after a step, unless they have another layout now."""
        assert other.held is not None
        for tensor, theirs in zip(self._small(), other._small(), strict=True):
            tensor.index_copy_(0, other.held, theirs)
        for tensor, theirs in zip(self.encoder_state, other.encoder_state, strict=True):
            tensor.unflatten(0, (len(self), -1)).index_copy_(0, other.held, theirs.unflatten(0, (len(other), -1)))
        self.trajectories_are_own = self.trajectories_are_own and other.trajectories_are_own

    def fits(self, other: "ParticleState") -> bool:
        """Whether rows that were lent by another state still have its layout."""
        pairs = zip(self._small(), other._small(), strict=True)
        n_own = [len(one.encoder_state[0]) // len(one) if one.encoder_state else 1 for one in (self, other)]
        return (
            self.keys is other.keys
            and n_own[0] == n_own[1]
            and all(mine.shape[1:] == theirs.shape[1:] and mine.dtype == theirs.dtype for mine, theirs in pairs)
        )

    def _small(self) -> tuple[Tensor, ...]:
        """What a row has beside keys, values and the encoder's state."""
        return self.last, self.log_weights, self.informed, self.trajectories, self.position, self.n_slots

    def dense(self) -> "ParticleState":
        """The same in memory of its own, if it was lent."""
        if self.held is None:
            return self
        return replace(self, keys=self.keys[self.held], values=self.values[self.held], held=None)

    @staticmethod
    def cat(states: Sequence["ParticleState"]) -> "ParticleState":
        """The rows of states of the same layout as one state, in memory of its own."""
        parts = [state._rows() for state in states]
        whole = states[0]._with_rows({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
        whole.trajectories_are_own = all(state.trajectories_are_own for state in states)
        return whole

    def as_ring(self, window: int) -> "ParticleState":
        """The slots that a ring of the window's length would hold, where it would hold them."""
        newest = self.n_slots.unsqueeze(-1) - 1
        slots = newest - (newest - torch.arange(window)) % window  # negative where nothing has been written yet
        keys, values, trajectories = self.at(slots.clamp(min=0))
        return replace(self, keys=keys, values=values, trajectories=trajectories)

    def at(self, slots: Int[Tensor, "batch chosen"]) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and trajectories of chosen slots of each sequence, (batch, particle, chosen, ...)."""
        index = (torch.arange(len(self))[:, None, None], torch.arange(self.n_particles)[:, None], slots.unsqueeze(1))
        return self.keys[index], self.values[index], self.trajectories[index]

    def last_slots(self, how_many: Int[Tensor, "batch"], parents: Int[Tensor, "batch path"]) -> PastSlots:
        """The last slots of each sequence in the order of time, as the past of `parents`' children."""
        slots = (self.n_slots - how_many).unsqueeze(-1) + torch.arange(int(how_many.max()))
        return PastSlots(*self.at(slots % max(1, self.capacity)), how_many, parents)

    def named_tensors(self) -> dict[str, Tensor]:
        """All rows by names, for a file; slots that were never written are zero."""
        written = torch.arange(self.capacity) < self.n_slots.unsqueeze(-1)
        tensors = {name: tensor.contiguous() for name, tensor in self._rows().items()}
        for name in ("keys", "values", "trajectories"):
            mask = written[:, None] if name == "trajectories" else written[:, None, :, None]
            tensors[name] = tensors[name].where(mask, 0)
        return self._flat(tensors)

    @classmethod
    def from_named_tensors(cls, tensors: Mapping[str, Tensor]) -> "ParticleState":
        """The inverse of `named_tensors`."""
        plain: dict[str, Any] = {name: tensor for name, tensor in tensors.items() if not _of_encoder(name)}
        # Without the flag, keys and values are read through the table, which is right for all.
        plain["trajectories_are_own"] = bool(plain.get("trajectories_are_own", False))
        return cls(**plain, encoder_state=named_encoder_state(tensors))

    def check(self, network: Network, n_particles: int) -> None:
        """That this can be a state of a network with so many particles: shapes, types, indices, finite numbers.

        For states that come from outside.

        Raises:
            ValueError: it cannot, and why.
        """
        self.check_places(network, n_particles)
        for name, tensor in (("last", self.last), ("keys", self.keys), ("values", self.values)):
            _check_finite(name, tensor)
        for number, tensor in enumerate(self.encoder_state):
            _check_finite(f"encoder/{number}", tensor)
        total = self.log_weights.double().logsumexp(dim=1)
        if not ((total.abs() < _SLACK).all() and (self.log_weights < _SLACK).all()):  # also where there is a NaN
            raise ValueError("the weights of some particles do not add up to 1")

    def check_places(self, network: Network, n_particles: int) -> None:
        """That the kernels, which follow indices without looking, stay inside: shapes, types, ranges of indices.

        Raises:
            ValueError: they would not, and why.
        """
        if not isinstance(self.log_weights, Tensor) or self.log_weights.ndim != 2:
            raise ValueError("log_weights must be a tensor of shape (batch, particle)")
        config, batch = network.config, len(self)
        n_own = self.last.shape[1] if isinstance(self.last, Tensor) and self.last.ndim == 3 else 1
        table = self.trajectories
        slots = table.shape[-1] if isinstance(table, Tensor) and table.ndim == 3 else 0
        numbers, whole, wide = network.dtype, torch.int64, config.d_model
        expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "last": ((batch, n_particles if n_own > 1 else 1, config.n_inputs), numbers),
            "log_weights": ((batch, n_particles), numbers),
            "informed": ((batch,), torch.bool),
            "keys": ((batch, n_particles, slots, wide), numbers),
            "values": ((batch, n_particles, slots, wide), numbers),
            "trajectories": ((batch, n_particles, slots), whole),
            "position": ((batch,), whole),
            "n_slots": ((batch,), whole),
        }
        for name, (shape, kind) in expected.items():
            _check_layout(name, getattr(self, name), shape, kind)
        for name in ("position", "n_slots"):
            _check_range(name, getattr(self, name), 0, FARTHEST)
        _check_range("trajectories", self.trajectories, 0, n_particles - 1)
        if slots == 0 or (slots != config.window and int(self.n_slots.max()) > slots):
            raise ValueError(f"the particles have written {int(self.n_slots.max())} slots, but hold {slots}")
        if self.past is not None or self.held is not None:
            raise ValueError("slots of others (past, held) are for particles that are lent, not for these")
        self._check_encoder_state(network, batch * n_own)

    def _check_encoder_state(self, network: Network, n_rows: int) -> None:
        """That the encoder can go on from its state: as it begins, but longer along axes that grow with the past."""
        features = network.observation.features(self.last.new_zeros(1, network.config.n_inputs))
        begun = network.encoder.start(features)
        if len(begun) != len(self.encoder_state):
            raise ValueError(f"the encoder remembers {len(begun)} tensors, got {len(self.encoder_state)}")
        for number, (tensor, first) in enumerate(zip(self.encoder_state, begun, strict=True)):
            name = f"encoder/{number}"
            grown = tuple(int(self.position[0]) if size == 0 else size for size in first.shape[1:])
            _check_layout(name, tensor, (n_rows, *grown), first.dtype)

    @classmethod
    def from_version_1(cls, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> "ParticleState":
        """The state of one series as release 0.1.0 saved it, where trajectories were called lines."""
        counters = {name: torch.tensor([header[name]]) for name in ("position", "n_slots")}
        named = {name: tensor for name, tensor in tensors.items() if name != "lines"}
        return cls.from_named_tensors({**named, **counters, "trajectories": tensors["lines"]})

    def _rows(self) -> dict[str, Tensor]:
        """All tensors, with the sequence as the first axis."""
        plain = (one.name for one in fields(self) if one.name not in _NOT_ROWS)
        rows = {name: getattr(self, name) for name in plain}
        return rows | encoder_names([tensor.unflatten(0, (len(self), -1)) for tensor in self.encoder_state])

    def _with_rows(self, rows: dict[str, Tensor]) -> "ParticleState":
        return self.from_named_tensors(self._flat(rows))

    def _flat(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        flat = {name: tensor.flatten(0, 1) if _of_encoder(name) else tensor for name, tensor in rows.items()}
        return {**flat, "trajectories_are_own": torch.tensor(self.trajectories_are_own)}


_NOT_ROWS = ("encoder_state", "trajectories_are_own", "past", "held", "follow_block")


def encoder_names(state: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors of an encoder's state by names, for a file."""
    return {f"encoder/{number}": tensor for number, tensor in enumerate(state)}


def named_encoder_state(tensors: Mapping[str, Tensor]) -> State:
    """The inverse of `encoder_names`; other names do not count."""
    names = sorted((name for name in tensors if _of_encoder(name)), key=lambda name: int(name.split("/")[1]))
    return tuple(tensors[name] for name in names)


def _of_encoder(name: str) -> bool:
    return name.startswith("encoder/")


_SLACK = 1e-3
"""By how much weights may miss their sum: they are logarithms in float32."""


def _check_layout(name: str, tensor: Any, shape: tuple[int, ...], kind: torch.dtype) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tuple(tensor.shape) != shape or tensor.dtype != kind:
        raise ValueError(f"{name} must be {kind} of shape {shape}, got {tensor.dtype} of shape {tuple(tensor.shape)}")


def _check_range(name: str, tensor: Tensor, least: int, most: int) -> None:
    if tensor.numel() and not (least <= int(tensor.min()) and int(tensor.max()) <= most):
        found = (int(tensor.min()), int(tensor.max()))
        raise ValueError(f"{name} must lie between {least} and {most}, got numbers between {found[0]} and {found[1]}")


def _check_finite(name: str, tensor: Tensor) -> None:
    if not tensor.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinite numbers")
