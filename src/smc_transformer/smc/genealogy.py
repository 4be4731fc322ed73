"""Ancestral lines: who descends from whom.

`ancestors[b, m, t]` is the parent, at step t-1, of particle m at step t (at the first step, m itself). Following
parents back from the last step gives the ancestral lines, the paper's approximation of the smoothing law.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def trace_lines(
    ancestors: Int[Tensor, "batch particle time"], ends: Int[Tensor, "batch line"] | None = None
) -> Int[Tensor, "batch line time"]:
    """Which particle each ancestral line passes through at each step.

    Args:
        ancestors: parent of each particle at each step.
        ends: the particles of the last step to trace back from; None: all of them.

    Returns:
        `lines[b, l, t]`, with `lines[..., -1] == ends`.
    """
    batch, n_particles, n_steps = ancestors.shape
    if ends is None:
        ends = torch.arange(n_particles, device=ancestors.device).expand(batch, n_particles)
    lines = ancestors.new_empty(batch, ends.shape[-1], n_steps)
    current = ends
    for step in range(n_steps - 1, -1, -1):
        lines[:, :, step] = current
        current = ancestors[:, :, step].gather(1, current)
    return lines


def gather_lines(
    values: Float[Tensor, "batch particle time feature"], lines: Int[Tensor, "batch line time"]
) -> Float[Tensor, "batch line time feature"]:
    """The values along ancestral lines: `out[b, l, t] = values[b, lines[b, l, t], t]`."""
    return values.gather(1, lines.unsqueeze(-1).expand(-1, -1, -1, values.shape[-1]))


def unique_ancestors(lines: Int[Tensor, "batch line time"]) -> Int[Tensor, "batch time"]:
    """How many different particles the lines pass through at each step (the paper's degeneracy figure)."""
    ordered = lines.sort(dim=1).values
    return 1 + (ordered.diff(dim=1) != 0).sum(dim=1)
