"""The gradient of the read-outs along trajectories; the filter has done the forward pass already."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from smc_transformer.kernels.layer import LayerTensors
from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import FACTORS, MEANS, NET, NOISES, POINTER, Replay, point, strides_of
from smc_transformer.kernels.sums import GROUPS, unpacked

ORDER = (*FACTORS, "output", *NET, "projection", "projection_bias")
"""The gradients of the parameters in the order of C."""


def replay_outputs(
    layer: LayerTensors,
    means: Sequence[Float[Tensor, "*owner d"]],
    embedding: Float[Tensor, "*owner d"],
    noise: Sequence[Float[Tensor, "batch particle time d"]],
    trajectories: Int[Tensor, "batch trajectory time"],
    window: int | None,
    outputs: Float[Tensor, "batch trajectory time n_out"] | None = None,
    nodes: Int[Tensor, "batch trajectory time"] | None = None,
) -> Float[Tensor, "batch trajectory time n_out"]:
    """The read-outs along trajectories, as functions of the layer's parameters, the means and the embedding.

    Means and embedding are (batch, 1 or trajectory, time, d) or, where `nodes` say which of them is whose, (node, d); a
    node belongs to one sequence. `outputs` are the read-outs where they are known already; constants may have been
    added to them.
    """
    tensors = layer.tensors()
    absent: dict[str, Any] = dict.fromkeys(tensors)  # autograd takes the tensors one by one
    settings = (loaded(embedding), layer._replace(**absent), window, tuple(tensors), nodes)
    parts = (*noise, *means, embedding, *tensors.values())
    found: Tensor = _ReplayOutputs.apply(settings, outputs, trajectories.contiguous(), *parts)
    return found


class _ReplayOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, settings: Any, outputs: Tensor | None, trajectories: Tensor, *tensors: Tensor) -> Tensor:
        noise, others = tensors[:4], [tensor.contiguous() for tensor in tensors[4:]]
        ctx.settings = settings
        ctx.save_for_backward(trajectories, *noise, *others)
        if outputs is not None:
            return outputs.clone()
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
        gradients_by_name = unpacked(sums.sum(dim=0), ORDER, work.parameters)
        return *(None,) * 7, *mean_gradients, *(gradients_by_name[name] for name in work.parameters)


class _Work:
    """The task of a replay as C sees it, without its results."""

    def __init__(self, settings: Any, trajectories: Tensor, tensors: list[Tensor]):
        self.kernels, layer, window, names, nodes = settings
        self.means, self.parameters = tensors[4:8], dict(zip(names, tensors[8:], strict=True))
        noise, strides = strides_of(tensors[:4], self.means[0])
        self.layer = layer._replace(**self.parameters).structure()
        batch, n_particles, n_steps, d_model = noise[0].shape
        self.task = Replay(
            batch=batch,
            n_trajectories=trajectories.shape[1],
            particles=n_particles,
            steps=n_steps,
            window=window or 0,
            owners=1 if nodes is not None else self.means[0].shape[1],
            groups=min(batch, GROUPS),
            noise_strides=strides,
            n_sums=int(self.kernels.count_sums(ctypes.byref(self.layer))),
        )
        tensors_by_name = dict(zip((*MEANS, *NOISES), (*self.means, *noise), strict=True))
        point(self.task, {**tensors_by_name, "trajectories": trajectories, "nodes": nodes})
        self.threads = threads(trajectories.numel() * 12 * d_model * d_model)
