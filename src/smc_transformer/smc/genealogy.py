"""Ancestral trajectories: who descends from whom.

`ancestors[b, m, t]` is the parent, at step t-1, of particle m at step t (at the first step, m itself). Following
parents back from the last step gives the ancestral trajectories, the paper's approximation of the smoothing
distribution.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def trace_trajectories(
    ancestors: Int[Tensor, "batch particle time"], ends: Int[Tensor, "batch trajectory"] | None = None
) -> Int[Tensor, "batch trajectory time"]:
    """Which particle each ancestral trajectory passes through at each step, the last of them its end.

    It is traced back from these `ends`, particles of the last step; None: all of them.
    """
    batch, n_particles, n_steps = ancestors.shape
    if ends is None:
        ends = torch.arange(n_particles, device=ancestors.device).expand(batch, n_particles)
    trajectories = ancestors.new_empty(batch, ends.shape[-1], n_steps)
    current = ends
    for step in range(n_steps - 1, -1, -1):
        trajectories[:, :, step] = current
        current = ancestors[:, :, step].gather(1, current)
    return trajectories


def gather_trajectories(
    values: Float[Tensor, "batch particle time feature"], trajectories: Int[Tensor, "batch trajectory time"]
) -> Float[Tensor, "batch trajectory time feature"]:
    """The values along ancestral trajectories: `out[b, l, t] = values[b, trajectories[b, l, t], t]`."""
    return values.gather(1, trajectories.unsqueeze(-1).expand(-1, -1, -1, values.shape[-1]))


def unique_ancestors(trajectories: Int[Tensor, "batch trajectory time"]) -> Int[Tensor, "batch time"]:
    """How many different particles the trajectories pass through at each step (the paper's degeneracy figure)."""
    ordered = trajectories.sort(dim=1).values
    return 1 + (ordered.diff(dim=1) != 0).sum(dim=1)
