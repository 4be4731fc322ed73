"""Fixed-lag smoothing (Kitagawa, 1996): what happened long ago is no longer resampled.

The particle of step s on a trajectory is chosen by X_1, ..., X_{s + lag} and then left alone, so every step keeps about
as many different particles as a filter of `lag` steps. The price is a bias: later observations do not count, and the
parts of a trajectory come from different ancestral trajectories.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from smc_transformer.smc.smoothers.base import History, Request, SmoothedTrajectories, smoother
from smc_transformer.smc.weights import uniform_log_weights


@smoother
def fixed_lag(history: History, request: Request) -> SmoothedTrajectories:
    """Equally weighted trajectories."""
    ancestors, lag, resample, generator = history.ancestors, request.lag, request.resample, request.generator
    batch, n_particles, n_steps = ancestors.shape
    themselves = torch.arange(n_particles, device=ancestors.device).expand(batch, n_particles)
    trajectories = torch.empty_like(ancestors)
    trajectories[:, :, 0] = themselves
    for step in range(1, n_steps):
        held = slice(max(0, step - lag), step)
        trajectories[:, :, held] = _of_parents(trajectories[:, :, held], ancestors[:, :, step])
        if step >= lag and history.by_weight is not None and not history.by_weight[:, step].all():
            # This slot is left alone from here on, and nothing has drawn it by the weights yet.
            drawn = resample(history.log_weights[:, :, step - 1], n_particles, generator)
            parents = torch.where(history.by_weight[:, step, None], themselves, drawn)
            trajectories[:, :, step - lag] = trajectories[:, :, step - lag].gather(1, parents)
        trajectories[:, :, step] = themselves
    n_trajectories = request.n_trajectories or n_particles
    ends = resample(history.log_weights[:, :, -1], n_trajectories, generator)
    old, recent = trajectories.tensor_split([max(0, n_steps - lag)], dim=-1)
    if n_trajectories != n_particles:  # which old parts go on is a matter of chance alone
        chosen = torch.rand(batch, n_trajectories, n_particles, generator=generator, device=ends.device).argmax(dim=-1)
        old = _of_parents(old, chosen)
    equal = uniform_log_weights(history.log_weights[:, :1, -1].expand(-1, n_trajectories))
    joined = torch.cat((old, _of_parents(recent, ends)), dim=-1)
    return SmoothedTrajectories(joined, equal, ancestral=lag >= n_steps)


def _of_parents(
    slots: Int[Tensor, "batch particle slot"], parents: Int[Tensor, "batch child"]
) -> Int[Tensor, "batch child slot"]:
    return slots.gather(1, parents.unsqueeze(-1).expand(-1, -1, slots.shape[-1]))
