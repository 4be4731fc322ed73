"""One row of each of many series: a step of all particles that judges it before it is seen, and the weighing by it."""

import ctypes
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smc_transformer.kernels.densities import Elliptical
from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.kernels.filter import SCHEMES
from smc_transformer.kernels.layer import LayerTensors
from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER, Bank, Contours, Follow, Row, View, point


class FollowSettings(NamedTuple):
    """What does not depend on the series."""

    window: int | None
    n_inputs: int
    n_targets: int
    adds_last: bool  # whether the last targets are added to the locations
    scheme: str
    ess_threshold: float
    selection: int  # the numbers of the draws
    noise: int


class FollowTensors(NamedTuple):
    """Series before a row; written, unless something else is said."""

    last: Float[Tensor, "batch owner n_inputs"]  # targets of the last row, and what is known of this one
    previous: Float[Tensor, "row n_inputs"] | None  # the encoder's state
    hidden: Float[Tensor, "row d"] | None
    keys: Float[Tensor, "held particle slot d"]  # one slot of each series is written
    values: Float[Tensor, "held particle slot d"]
    held: Int[Tensor, "batch"] | None  # read: where keys and values of each series are; None: in their order
    trajectories: Int[Tensor, "batch particle slot"]
    log_weights: Float[Tensor, "batch particle"]
    informed: Bool[Tensor, "batch"]
    position: Int[Tensor, "batch"]  # read
    n_slots: Int[Tensor, "batch"]  # read
    stream_keys: Int[Tensor, "batch"]  # read


class Followed(NamedTuple):
    """What the particles say about a row before it is seen."""

    parameters: Float[Tensor, "batch particle n_parameters"]
    log_density: Float[Tensor, "batch n_targets"]  # of each target alone; NaN where it is missing
    pit: Float[Tensor, "batch n_targets"]
    resampled: Bool[Tensor, "batch"]


class FollowModel:
    """A network as C follows series by it. Its tensors are looked at where they are, when it is called."""

    def __init__(
        self,
        layer: LayerTensors,
        encoder: EncoderTensors,
        density: Elliptical,
        projections: dict[str, Float[Tensor, "d d"]],
        settings: FollowSettings,
    ) -> None:
        assert layer.projection is not None
        self._layer, self._encoder = layer.structure(), encoder.structure()
        lowest, highest = density.log_scales or (None, None)
        given = {"root": density.root, "lowest": lowest, "highest": highest}
        parts = {name: None if part is None else part.contiguous() for name, part in given.items()}
        self._contours = Contours(n=settings.n_targets, constant=density.constant, degrees=density.degrees or 0.0)
        point(self._contours, parts)
        self._n_parameters = len(layer.projection)
        self._template = Follow(
            window=settings.window or 0,
            n_inputs=settings.n_inputs,
            n_targets=settings.n_targets,
            n_parameters=self._n_parameters,
            adds_last=settings.adds_last,
            scheme=SCHEMES.index(settings.scheme),
            ess_threshold=settings.ess_threshold,
            selection=settings.selection,
            noise=settings.noise,
            constant=density.constant,
            degrees=density.degrees or 0.0,
        )
        point(self._template, {**parts, **projections})
        self._settings, self._d = settings, len(layer.output)

    def step(self, series: FollowTensors, targets: Float[Tensor, "batch n_targets"]) -> Followed:
        """Take the step up to a row and judge it."""
        self._check(series, targets)
        batch, n_particles, capacity = series.trajectories.shape
        like = series.log_weights
        found = Followed(
            like.new_empty(batch, n_particles, self._n_parameters),
            torch.empty_like(targets),
            torch.empty_like(targets),
            torch.empty_like(series.informed),
        )
        task = Follow.from_buffer_copy(self._template)
        task.batch, task.particles, task.owners, task.capacity = batch, n_particles, series.last.shape[1], capacity
        for name, tensor in (*zip(series._fields, series, strict=True), *zip(found._fields, found, strict=True)):
            if tensor is not None:
                setattr(task, name, tensor.data_ptr())
        task.targets = targets.data_ptr()
        work = batch * n_particles * self._d * (8 * self._d + capacity)
        structures = (ctypes.byref(task), ctypes.byref(self._layer), ctypes.byref(self._encoder))
        check(loaded(like).follow_series(*structures, threads(work)))
        return found

    def block(self, series: FollowTensors) -> "FollowBlock":
        """Series in memory that stays where it is; their `stream_keys` and `held` are not used."""
        self._check(series, series.last.new_empty(len(series.last), self._settings.n_targets))
        return FollowBlock(self._template, self._layer, self._encoder, series)

    def weigh(
        self,
        targets: Float[Tensor, "batch n_targets"],
        parameters: Float[Tensor, "batch particle n_parameters"],
        log_weights: Float[Tensor, "batch particle"],
        informed: Bool[Tensor, "batch"],
    ) -> None:
        """Weigh by rows of which all targets are there, in place; the others are left as they are."""
        tensors = (targets, parameters, log_weights, informed)
        assert all(tensor.is_contiguous() for tensor in tensors)
        sizes = map(COUNT, parameters.shape)
        pointers = (POINTER(tensor.data_ptr()) for tensor in tensors)
        check(loaded(log_weights).weigh_series(ctypes.byref(self._contours), *pointers, *sizes))

    def _check(self, series: FollowTensors, targets: Tensor) -> None:
        """That C finds what it expects: it looks at no shape."""
        batch, n_particles, capacity = series.trajectories.shape
        owners, settings, d = series.last.shape[1], self._settings, self._d
        shapes = {
            "last": (batch, owners, settings.n_inputs),
            "previous": (batch * owners, settings.n_inputs),
            "hidden": (batch * owners, d),
            "keys": (series.keys.shape[0], n_particles, capacity, d),
            "values": (series.keys.shape[0], n_particles, capacity, d),
            "trajectories": (batch, n_particles, capacity),
            "log_weights": (batch, n_particles),
        }
        for name, tensor in zip(series._fields, series, strict=True):
            if tensor is not None and (tensor.shape != shapes.get(name, (batch,)) or not tensor.is_contiguous()):
                raise ValueError(
                    f"{name} must be contiguous and of shape {shapes.get(name, (batch,))}, got {tuple(tensor.shape)}"
                )
        if targets.shape != (batch, settings.n_targets) or not targets.is_contiguous():
            raise ValueError(f"targets must be contiguous and of shape {(batch, settings.n_targets)}")
        if owners not in (1, n_particles) or (series.held is None and len(series.keys) != batch):
            raise ValueError(f"{batch} series of {n_particles} particles have {owners} owners, {len(series.keys)} keys")


class TakenRow(NamedTuple):
    """What one row of one series was, before it was seen."""

    log_density: Float[np.ndarray, "n_targets"]
    pit: Float[np.ndarray, "n_targets"]
    unit: Float[np.ndarray, "n_targets"]  # in which the model sees it
    resampled: bool


class FollowBlock:
    """Followed series in memory that stays where it is, each of which takes a row there."""

    def __init__(
        self, template: Follow, layer: ctypes.Structure, encoder: ctypes.Structure, series: FollowTensors
    ) -> None:
        batch, n_particles, capacity = series.trajectories.shape
        self._template = Follow.from_buffer_copy(template)
        self._template.batch, self._template.particles, self._template.capacity = 1, n_particles, capacity
        self._template.owners = series.last.shape[1]
        self._kept = (template, layer, encoder, series)
        self._structures = (ctypes.byref(layer), ctypes.byref(encoder))
        placed = series._replace(held=None, stream_keys=series.position)._asdict().items()
        # Where the part of the first series is, and how many bytes further that of the next.
        self._places = [
            (name, tensor.data_ptr(), tensor.nbytes // batch)
            for name, tensor in placed
            if tensor is not None and name != "stream_keys"
        ]
        self._n_series, self._n_targets = batch, template.n_targets
        self._outputs = series.last.new_empty(n_particles, template.n_parameters)
        self._like = series.last

    def take_row(
        self,
        number: int,
        stream_key: int,
        bank: Bank,
        view: View,
        columns: Int[np.ndarray, "n_targets"],
        values: Float[np.ndarray, "n_targets"],
        given: Float[np.ndarray, "given"],
        largest: float,
    ) -> TakenRow | None:
        """All of a row of one series; None, and nothing has happened, where the model cannot hold a number.

        Args:
            number: which of the series.
            stream_key: of its random numbers.
            bank: what is remembered of all columns.
            view: its constants.
            columns: which of them are those of the series.
            values: the row, none missing.
            given: inputs that are known ahead, but for those of the view.
            largest: number that the model can hold.
        """
        n, n_features = self._n_targets, 4 + bank.seasons + bool(view.counts)
        if not (0 <= number < self._n_series and len(columns) == len(values) == n):
            raise ValueError(f"there are {self._n_series} series of {n} targets, got {len(values)} values of {number}")
        if n + len(given) + n * n_features != self._template.n_inputs or columns.min() < 0:
            raise ValueError(
                f"{self._template.n_inputs} inputs are not {n} targets, {len(given)} given, {n_features} features"
            )
        if columns.max() >= bank.n_columns or columns.dtype != np.int64:
            raise ValueError(f"columns must be among {bank.n_columns}, got {columns}")
        numbers, scaled, flags = np.empty(n), np.empty((3, n), dtype=np.float32), np.empty(1, dtype=np.uint8)
        values, given = (np.ascontiguousarray(part, dtype=np.float64) for part in (values, given))
        key = np.array([stream_key], dtype=np.int64)
        task = Follow.from_buffer_copy(self._template)
        for name, first, size in self._places:
            setattr(task, name, first + number * size)
        at = _address(scaled)
        task.stream_keys, task.resampled, task.parameters = _address(key), _address(flags), self._outputs.data_ptr()
        task.targets, task.log_density, task.pit = at, at + 4 * n, at + 8 * n
        row = Row(
            _address(columns),
            _address(values),
            _address(given),
            len(given),
            n_features,
            largest,
            _address(numbers),
            at,
            task.position,
            task.n_slots,
        )
        structures = (ctypes.byref(bank), ctypes.byref(view), ctypes.byref(row))
        failed = loaded(self._like).take_row(ctypes.byref(task), *self._structures, *structures)
        if failed == NOT_HELD:
            return None
        check(failed)
        return TakenRow(scaled[1], scaled[2], numbers, bool(flags[0]))


NOT_HELD = 2
"""What C returns where the model cannot hold a number."""


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
