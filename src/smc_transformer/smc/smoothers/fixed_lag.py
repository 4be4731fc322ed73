"""Fixed-lag smoothing (Kitagawa, 1996): what happened long ago is no longer resampled.

The particle of step s on a trajectory is chosen by X_1, ..., X_{s + lag} and then left alone, so every step keeps about
as many different particles as a filter of `lag` steps. The price is a bias: later observations do not count, and the
parts of a trajectory come from different ancestral trajectories.
"""

import torch
from torch import Generator

from smc_transformer.smc.resampling import Resampler
from smc_transformer.smc.smoothers.base import FutureDensity, History, SmoothedTrajectories, smoother
from smc_transformer.smc.weights import uniform_log_weights


@smoother
def fixed_lag(
    history: History,
    n_trajectories: int | None,
    lag: int,
    resample: Resampler,
    future_density: FutureDensity | None,
    generator: Generator | None = None,
) -> SmoothedTrajectories:
    """Equally weighted trajectories."""
    ancestors = history.ancestors
    batch, n_particles, n_steps = ancestors.shape
    themselves = torch.arange(n_particles, device=ancestors.device).expand(batch, n_particles)
    trajectories = torch.empty_like(ancestors)
    trajectories[:, :, 0] = themselves
    for step in range(1, n_steps):
        _inherit(trajectories, ancestors[:, :, step], slice(max(0, step - lag), step))
        if step >= lag and history.by_weight is not None and not history.by_weight[:, step].all():
            # This slot is left alone from here on, and nothing has drawn it by the weights yet.
            drawn = resample(history.log_weights[:, :, step - 1], n_particles, generator)
            parents = torch.where(history.by_weight[:, step, None], themselves, drawn)
            _inherit(trajectories, parents, slice(step - lag, step - lag + 1))
        trajectories[:, :, step] = themselves
    n_trajectories = n_particles if n_trajectories is None else n_trajectories
    ends = resample(history.log_weights[:, :, -1], n_trajectories, generator)
    if n_trajectories != n_particles:  # which old parts go on is a matter of chance alone
        chosen = torch.rand(batch, n_trajectories, n_particles, generator=generator, device=ends.device).argmax(dim=-1)
        old = trajectories[:, :, : max(0, n_steps - lag)]
        old = old.gather(1, chosen.unsqueeze(-1).expand(-1, -1, old.shape[-1]))
    else:
        old = trajectories[:, :, : max(0, n_steps - lag)]
    recent = trajectories[:, :, max(0, n_steps - lag) :]
    recent = recent.gather(1, ends.unsqueeze(-1).expand(-1, -1, recent.shape[-1]))
    equal = uniform_log_weights(history.log_weights[:, :1, -1].expand(-1, n_trajectories))
    return SmoothedTrajectories(torch.cat((old, recent), dim=-1), equal, ancestral=lag >= n_steps)


def _inherit(trajectories: torch.Tensor, parents: torch.Tensor, held: slice) -> None:
    """Let children take over the held slots of their parents."""
    part = trajectories[:, :, held]
    trajectories[:, :, held] = part.gather(1, parents.unsqueeze(-1).expand(-1, -1, part.shape[-1]))
