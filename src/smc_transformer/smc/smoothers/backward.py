"""Backward simulation (Godsill et al., 2004) for a model with memory: each step chooses again who came before.

Walking back from the last step, a trajectory takes at step t any particle m, with all its past, with probability

    proportional to  W_t^m p(X_{t+1}, ..., X_{t+lag} | past of m, what the trajectory has chosen after t),

which is exact when `lag` reaches the end or the window hides the past. The noise of later steps does not depend on the
past, so no density of a transition is needed. It costs (particles x lag) densities for each trajectory and step.
"""

import torch
from torch import Generator

from smc_transformer.smc.resampling import Resampler, multinomial
from smc_transformer.smc.smoothers.base import FutureDensity, History, SmoothedTrajectories, smoother
from smc_transformer.smc.weights import normalise, uniform_log_weights


@smoother
def backward(
    history: History,
    n_trajectories: int | None,
    lag: int,
    resample: Resampler,
    future_density: FutureDensity | None,
    generator: Generator | None = None,
) -> SmoothedTrajectories:
    """Equally weighted trajectories."""
    if future_density is None:
        raise ValueError("backward simulation needs to look ahead")
    batch, n_particles, n_steps = history.ancestors.shape
    n_trajectories = n_particles if n_trajectories is None else n_trajectories
    trajectories = history.ancestors.new_zeros(batch, n_trajectories, n_steps)
    trajectories[:, :, -1] = resample(history.log_weights[:, :, -1], n_trajectories, generator)
    for step in range(n_steps - 2, -1, -1):
        future = future_density(step, trajectories, lag)
        log_weights, _ = normalise(history.log_weights[:, None, :, step] + future)
        chosen = multinomial(log_weights.flatten(0, 1), 1, generator)
        trajectories[:, :, step] = chosen.view(batch, n_trajectories)
    equal = uniform_log_weights(torch.empty_like(history.log_weights[:, :1, -1].expand(-1, n_trajectories)))
    return SmoothedTrajectories(trajectories, equal, ancestral=False)
