"""The gradient of the read-outs along trajectories; the filter has done the forward pass already."""

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from smc_transformer.kernels.layer import (
    FACTORS,
    NET,
    NOISES,
    Strides,
    has_layer,
    layer_of,
    layer_parameters,
    point,
    strides_of,
)
from smc_transformer.kernels.library import COUNT, POINTER, check, library, threads
from smc_transformer.nn.covariance import FullCovariance
from smc_transformer.nn.observation.base import ObservationModel

if TYPE_CHECKING:
    from smc_transformer.inference.replay import TrajectoryInputs
    from smc_transformer.model import SMCTransformer
    from smc_transformer.nn.attention import Noise

MEANS = ("query_mean", "key_mean", "value_mean", "embedding")
GROUPS = 64
"""Sequences are summed over in at most so many groups: the order of sums must not depend on the threads."""


class Replay(ctypes.Structure):
    """Mirror of the C structure in replay.c."""

    _fields_ = [
        *((name, COUNT) for name in ("batch", "n_trajectories", "particles", "steps", "window", "owners", "groups")),
        *((name, POINTER) for name in (*MEANS, *NOISES)),
        ("noise_strides", Strides),
        *((name, POINTER) for name in ("trajectories", "gradient")),
        *((f"{name}_gradient", POINTER) for name in MEANS),
        ("sums", POINTER),
        ("n_sums", COUNT),
    ]


def replay_read_outs(
    model: "SMCTransformer", inputs: "TrajectoryInputs", noise: "Noise", trajectories: Tensor, read_outs: Tensor | None
) -> Tensor | None:
    """The parameters of p(X_t | z) along trajectories, as functions of the model's; None where torch must replay.

    Args:
        model: the model.
        inputs: what the trajectories see.
        noise: of all particles, (batch, particle, time, d_model).
        trajectories: (batch, trajectory, time).
        read_outs: what the filter found along the trajectories, (batch, trajectory, time, n); None if it has not been
            through them.
    """
    embedding = inputs.embedding
    attention = model.attention
    full = any(isinstance(covariance, FullCovariance) for covariance in attention.covariances)
    shifts = model.config.predict_change and type(model.observation).shift is not ObservationModel.shift
    kernels = library(embedding)
    if full or shifts or kernels is None or not has_layer(model):
        return None
    means = attention.means(embedding)
    parameters = layer_parameters(model)
    settings = (kernels, attention.n_heads, attention.window, tuple(parameters), model.readout)
    trajectories = trajectories.contiguous()
    found = _ReplayReadOuts.apply(settings, read_outs, trajectories, *noise, *means, embedding, *parameters.values())
    if read_outs is None and model.config.predict_change:
        return model.observation.shift(found, inputs.last_targets)
    return found


class _ReplayReadOuts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: Any, read_outs: Tensor | None, trajectories: Tensor, *tensors: Tensor) -> Tensor:
        noise, others = tensors[:4], [tensor.contiguous() for tensor in tensors[4:]]
        ctx.settings = settings
        ctx.save_for_backward(trajectories, *noise, *others)
        if read_outs is not None:
            return read_outs.clone()
        work = _Work(settings, trajectories, [*noise, *others])
        out = others[0].new_empty(*trajectories.shape, len(work.parameters["projection"]))
        check(
            work.kernels.replay_forward(
                ctypes.byref(work.task), ctypes.byref(work.layer), POINTER(out.data_ptr()), work.threads
            )
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        trajectories, *tensors = ctx.saved_tensors
        work = _Work(ctx.settings, trajectories, tensors)
        mean_gradients = [torch.zeros_like(part) for part in work.means]
        sums = gradient.new_zeros(work.task.groups, work.task.n_sums)
        gradients = {f"{name}_gradient": part for name, part in zip(MEANS, mean_gradients, strict=True)}
        point(work.task, {"gradient": gradient.contiguous(), "sums": sums, **gradients})
        check(work.kernels.replay_backward(ctypes.byref(work.task), ctypes.byref(work.layer), work.threads))
        return *(None,) * 7, *mean_gradients, *_unpacked(sums.sum(dim=0), work.parameters)


class _Work:
    """The task of a replay as C sees it, without its results."""

    def __init__(self, settings: Any, trajectories: Tensor, tensors: list[Tensor]):
        self.kernels, n_heads, window, names, readout = settings
        self.means, self.parameters = tensors[4:8], dict(zip(names, tensors[8:], strict=True))
        noise, strides = strides_of(tensors[:4], self.means[0])
        n_outputs = len(self.parameters["projection"])
        self.layer = layer_of(self.parameters, n_heads, n_outputs, readout)
        batch, n_particles, n_steps, d_model = noise[0].shape
        self.task = Replay(
            batch=batch,
            n_trajectories=trajectories.shape[1],
            particles=n_particles,
            steps=n_steps,
            window=window or 0,
            owners=self.means[0].shape[1],
            groups=min(batch, GROUPS),
            noise_strides=strides,
            n_sums=int(self.kernels.count_sums(ctypes.byref(self.layer))),
        )
        tensors_by_name = dict(zip((*MEANS, *NOISES), (*self.means, *noise), strict=True))
        point(self.task, {**tensors_by_name, "trajectories": trajectories})
        self.threads = threads(trajectories.numel() * 12 * d_model * d_model)


def _unpacked(sums: Tensor, parameters: dict[str, Tensor]) -> list[Tensor]:
    """The gradients of the parameters, which C keeps one after the other with padded rows."""
    gradients, place = {}, 0
    for name in (*FACTORS, "output", *NET, "projection", "projection_bias"):
        if name not in parameters:
            continue
        shape = parameters[name].shape
        room = [_padded(size, sums.dtype) for size in shape]
        size = torch.Size(room).numel()
        padded = sums[place : place + size].view(room)
        gradients[name] = padded[tuple(slice(0, size) for size in shape)].contiguous()
        place += size
    return [gradients[name] for name in parameters]


def _padded(size: int, dtype: torch.dtype) -> int:
    lanes = 64 // dtype.itemsize
    return -(-size // lanes) * lanes
