"""A GRU over sequences, or over trees of inputs that trajectories have in common: forward and back in one call each."""

import ctypes
import functools
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER, Recurrent, point
from smc_transformer.kernels.sums import GROUPS, unpacked

GROUP = 8
"""Sequences that go through time side by side, at least: as many as C has rows in a block."""


class Trees(NamedTuple):
    """The inputs of trajectories, each once: a node is an input and all that came before it.

    Nodes are numbered by group of sequences, and in a group by step.
    """

    nodes: Int[Tensor, "batch trajectory time"]
    """The node that each trajectory is at."""
    parents: Int[Tensor, "node"]
    """The node before; -1 for the first."""
    levels: Int[Tensor, "group time_plus_1"]
    """Where the nodes of each step begin, and where those of the last one end."""
    rows: Int[Tensor, "node"]
    """One of the places that each node stands at, counted through (batch, trajectory, time)."""

    def gathered(self, values: Float[Tensor, "batch trajectory time feature"]) -> Float[Tensor, "node feature"]:
        """What each node has, from what each trajectory has."""
        return values.reshape(-1, values.shape[-1]).index_select(0, self.rows)


def trees(branches: Int[Tensor, "batch trajectory time"]) -> Trees:
    """The trees of trajectories: those of the same branch at a step, a number from 0 on, have the same past."""
    batch, n_trajectories, n_steps = branches.shape
    size = max(GROUP, -(-batch // GROUPS))
    branches = branches.contiguous()
    nodes, parents, rows = torch.empty_like(branches), *torch.empty(2, branches.numel(), dtype=torch.long)
    levels = torch.empty(-(-batch // size), n_steps + 1, dtype=torch.long)
    sizes = map(COUNT, (batch, n_trajectories, n_steps, size))
    written = (POINTER(part.data_ptr()) for part in (nodes, parents, rows, levels))
    failed = loaded(torch.empty(0)).number_nodes(POINTER(branches.data_ptr()), *sizes, *written)
    if failed < 0:
        raise IndexError("branches are numbered from 0 on")
    check(failed)
    n_nodes = int(levels[-1, -1])
    return Trees(nodes, parents[:n_nodes], levels, rows[:n_nodes])


@functools.lru_cache(maxsize=64)
def straight_trees(batch: int, n_steps: int) -> Trees:
    """Those of sequences that share nothing."""
    return trees(torch.zeros(batch, 1, n_steps, dtype=torch.long))


def encode_trees(encoder: EncoderTensors, inputs: Float[Tensor, "node width"], among: Trees) -> Float[Tensor, "node d"]:
    """The states of a GRU at each node, as functions of its parameters; the inputs are constants."""
    assert encoder.recurrent is not None
    assert encoder.recurrent_bias is not None
    learned = (encoder.weight, encoder.bias, encoder.recurrent, encoder.recurrent_bias)
    found: Tensor = _EncodeTrees.apply(inputs.detach().contiguous(), among, *learned)
    return found


class _EncodeTrees(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, among: Trees, *learned: Tensor) -> Tensor:
        work = _Work(inputs, among, learned)
        embedding = inputs.new_empty(len(inputs), work.encoder.d)
        work.run(embedding)
        ctx.among = among
        ctx.save_for_backward(inputs, embedding, *learned)
        return embedding

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, embedding, *learned = ctx.saved_tensors
        work = _Work(inputs, ctx.among, learned)
        n_sums = int(work.kernels.count_recurrent_sums(ctypes.byref(work.encoder)))
        work.task.n_sums = n_sums
        sums = gradient.new_zeros(work.task.groups, n_sums)
        # What comes from later nodes is added to it.
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        point(work.task, {"gradient": gradient, "sums": sums})
        work.run(embedding)
        names = EncoderTensors._fields[:4]
        gradients = unpacked(sums.sum(dim=0), names, dict(zip(names, learned, strict=True)))
        return None, None, *(gradients[name] for name in names)


class _Work:
    """The task of encoding, as C sees it."""

    def __init__(self, inputs: Tensor, among: Trees, learned: Any):
        self.kernels = loaded(inputs)
        self.encoder = EncoderTensors(*learned).structure()
        n_groups, n_levels = among.levels.shape
        self.task = Recurrent(groups=n_groups, steps=n_levels - 1)
        point(self.task, {"levels": among.levels.contiguous(), "parents": among.parents, "inputs": inputs})
        d, width = self.encoder.d, self.encoder.width
        self.threads = threads(len(inputs) * 6 * d * (d + width))

    def run(self, embedding: Tensor) -> None:
        """Forward, or back if there are sums."""
        point(self.task, {"embedding": embedding})
        check(self.kernels.encode_trees(ctypes.byref(self.task), ctypes.byref(self.encoder), self.threads))
