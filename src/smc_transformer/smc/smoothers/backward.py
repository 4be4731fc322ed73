"""Backward simulation (Godsill et al., 2004) for a model with memory: each step draws the particle before it again.

Walking back from the last step, a trajectory takes at step t any particle m, with all its past, with probability

    proportional to  W_t^m p(X_{t+1}, ..., X_{t+lag} | past of m, what the trajectory has chosen after t),

which is exact when `lag` reaches the end or the window hides the past. The noise of later steps does not depend on the
past, so no density of a transition is needed. It costs (particles x lag) densities for each trajectory and step.
"""

import torch

from smc_transformer.smc.resampling import multinomial
from smc_transformer.smc.smoothers.base import History, Request, SmoothedTrajectories, smoother
from smc_transformer.smc.weights import normalise, uniform_log_weights


@smoother
def backward(history: History, request: Request) -> SmoothedTrajectories:
    """Equally weighted trajectories."""
    if request.future_density is None:
        raise ValueError("backward simulation needs `future_density`")
    batch, n_particles, n_steps = history.ancestors.shape
    n_trajectories = request.n_trajectories or n_particles
    trajectories = history.ancestors.new_zeros(batch, n_trajectories, n_steps)
    trajectories[:, :, -1] = request.resample(history.log_weights[:, :, -1], n_trajectories, request.generator)
    for step in range(n_steps - 2, -1, -1):
        future = request.future_density(step, trajectories, request.lag)
        log_weights, _ = normalise(history.log_weights[:, None, :, step] + future)
        chosen = multinomial(log_weights.flatten(0, 1), 1, request.generator)
        trajectories[:, :, step] = chosen.view(batch, n_trajectories)
    equal = uniform_log_weights(torch.empty_like(history.log_weights[:, :1, -1].expand(-1, n_trajectories)))
    return SmoothedTrajectories(trajectories, equal, ancestral=False)
