"""Forecast paths in one call, with or without gradients."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from smc_transformer.kernels.densities import Elliptical, NegativeBinomial
from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.kernels.layer import LayerTensors
from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.step import PastSlots
from smc_transformer.kernels.structures import FACTORS, NET, NOISES, PROJECTIONS, Paths, Strides, point, strides_of
from smc_transformer.kernels.sums import GROUPS, unpacked

ORDER = (*FACTORS, "output", *NET, "projection", "projection_bias", *PROJECTIONS)
"""The gradients of the layer's parameters in the order of C; those of the encoder follow."""


class PathsStart(NamedTuple):
    """Where paths begin."""

    last: Float[Tensor, "batch path n_inputs"]
    """The inputs of the first step; of counts log(1 + count), like those before."""
    past: PastSlots
    previous: Float[Tensor, "batch path n_inputs"] | None = None
    """The inputs before the last ones, for an encoder that sees changes."""
    hidden: Float[Tensor, "batch path d"] | None = None
    """The state of a GRU."""
    positions: Float[Tensor, "batch horizon d"] | None = None
    """Encodings of the positions, added to the embeddings."""


class PathsModel(NamedTuple):
    """The parameters behind paths."""

    layer: LayerTensors
    encoder: EncoderTensors
    density: Elliptical | NegativeBinomial
    query: Float[Tensor, "d d"]
    key: Float[Tensor, "d d"]
    value: Float[Tensor, "d d"]
    window: int | None
    adds_last: bool
    """Whether the last targets are added to the locations."""


def draw_paths(
    model: PathsModel,
    start: PathsStart,
    known: Float[Tensor, "batch horizon known"],
    noise: Sequence[Float[Tensor, "batch path horizon d"]] | Int[Tensor, "horizon"],
    draws: Float[Tensor, "batch path horizon n_targets"] | Int[Tensor, "horizon 2"],
    streams: tuple[Int[Tensor, "batch"], Int[Tensor, "batch"]] | None = None,
) -> tuple[Float[Tensor, "batch path horizon n_targets"], Float[Tensor, "batch path horizon n_parameters"]]:
    """Paths of the targets, X = location + scale * (root draw) at each step, and the parameters they were drawn from.

    Instead of the noise there may be a seed for each step, of which C makes it; not where gradients are wanted. With
    `streams`, the key and the step of each sequence's own stream, the seeds are the numbers of the draws there. Counts
    need streams, and for each step the numbers of two draws, of a Gamma and of a Poisson number. The paths are
    functions of all parameters, of the draws, of the state of a GRU and, if the past slots are those of the paths
    themselves, of these; what they start from and the parameters that come with them are constants.
    """
    learned = {
        **model.layer.tensors(),
        **{name: getattr(model, name) for name in PROJECTIONS},
        **{f"encoder_{name}": part for name, part in model.encoder.learned().items()},
    }
    settings = (model, start, known, noise, streams, tuple(learned))
    past = (start.past.keys, start.past.values)
    targets, parameters = _DrawPaths.apply(settings, draws, start.hidden, *past, *learned.values())
    return targets, parameters


class _DrawPaths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: Any, draws: Tensor, *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.settings = settings
        ctx.save_for_backward(draws, *tensors)
        work = _Work(settings, draws, tensors)
        work.run()
        ctx.mark_non_differentiable(work.parameters)
        return work.targets, work.parameters

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        draws, *tensors = ctx.saved_tensors
        work = _Work(ctx.settings, draws, tensors)
        return None, *work.run_back(gradient.contiguous())


class _Work:
    """The task of drawing paths, as C sees it."""

    def __init__(self, settings: Any, draws: Tensor, tensors: Sequence[Tensor | None]):
        model, start, known, noise, streams, self.names = settings
        self.hidden, past_keys, past_values = tensors[:3]
        self.learned = dict(zip(self.names, tensors[3:], strict=True))
        own = {name.removeprefix("encoder_"): part for name, part in self.learned.items() if "encoder_" in name}
        of_layer = {name: part for name, part in self.learned.items() if name in model.layer._fields}
        self.kernels = loaded(start.last)
        self.layer = model.layer._replace(**of_layer).structure()
        self.encoder = model.encoder._replace(**own).structure()
        self.seeded = isinstance(noise, Tensor)
        eps, strides = ([], Strides()) if self.seeded else strides_of(noise, start.last)
        (batch, n_paths, n_inputs), n_steps = start.last.shape, known.shape[1]
        n_targets = n_inputs - known.shape[2]
        self.targets = start.last.new_empty(batch, n_paths, n_steps, n_targets)
        self.parameters = start.last.new_empty(batch, n_paths, n_steps, self.layer.n_out)
        self.past = (past_keys, past_values)
        self.task = Paths(
            batch=batch,
            paths=n_paths,
            steps=n_steps,
            window=model.window or 0,
            n_inputs=n_inputs,
            n_targets=n_targets,
            n_parameters=self.layer.n_out,
            adds_last=model.adds_last,
            noise_strides=strides,
            past_particles=start.past.keys.shape[1],
            past_slots=start.past.keys.shape[2],
        )
        tensors_by_name = {
            **{name: self.learned[name] for name in PROJECTIONS},
            **{name: getattr(start, name) for name in ("last", "previous", "positions")},
            "hidden": self.hidden,
            "known": known,
            **self._density(model.density, draws),
            "past_keys": past_keys,
            "past_values": past_values,
            "past_trajectories": start.past.trajectories,
            "parents": start.past.parents,
            "n_past": start.past.n_slots,
            "targets": self.targets,
            "parameters": self.parameters,
        }
        point(self.task, {name: None if part is None else part.contiguous() for name, part in tensors_by_name.items()})
        point(self.task, {"seeds": noise.contiguous()} if self.seeded else dict(zip(NOISES, eps, strict=True)))
        if streams is not None:
            point(self.task, dict(zip(("stream_keys", "stream_steps"), streams, strict=True)))
        self.threads = threads(batch * n_paths * n_steps * 12 * self.layer.d**2)

    def _density(self, density: Elliptical | NegativeBinomial, draws: Tensor) -> dict[str, Tensor | None]:
        """What targets are made from."""
        if isinstance(density, NegativeBinomial):
            self.task.largest_log = density.largest_log
            return {"count_draws": draws}
        lowest, highest = density.log_scales or (None, None)
        return {"draws": draws, "root": density.root, "lowest": lowest, "highest": highest}

    def run(self) -> None:
        """Draw the paths."""
        structures = map(ctypes.byref, (self.task, self.layer, self.encoder))
        check(self.kernels.draw_paths(*structures, self.threads))

    def run_back(self, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Draw them again, and go back from the gradient of the targets to that of each differentiable tensor."""
        if self.seeded:  # those of counts, too
            raise ValueError("paths whose noise was made in C have no gradient")
        n_sums = int(self.kernels.count_path_sums(ctypes.byref(self.layer), ctypes.byref(self.encoder)))
        self.task.groups, self.task.n_sums = min(len(gradient), GROUPS), n_sums
        sums = gradient.new_zeros(self.task.groups, n_sums)
        hidden = None if self.hidden is None else torch.empty_like(self.hidden)
        shape = (*gradient.shape[:2], self.task.past_slots, self.layer.d)
        past = [gradient.new_zeros(shape), gradient.new_zeros(shape)]
        draws = torch.empty_like(gradient)
        results = {"draws": draws, "hidden": hidden, "past_keys": past[0], "past_values": past[1]}
        point(self.task, {"targets_gradient": gradient, "sums": sums})
        point(self.task, {f"{name}_gradient": part for name, part in results.items()})
        self.run()
        of_encoder = (f"encoder_{name}" for name in EncoderTensors._fields)
        gradients = unpacked(sums.sum(dim=0), (*ORDER, *of_encoder), self.learned)
        return draws, hidden, *past, *(gradients[name] for name in self.names)
