"""The ancestral trajectories of the last step (the paper's smoother).

Free, and exact for many particles; but trajectories have few ancestors: one or two particles stand for a step long ago.
"""

from torch import Generator

from smc_transformer.smc.genealogy import trace_trajectories
from smc_transformer.smc.resampling import Resampler
from smc_transformer.smc.smoothers.base import FutureDensity, History, SmoothedTrajectories, smoother
from smc_transformer.smc.weights import uniform_log_weights


@smoother
def genealogy(
    history: History,
    n_trajectories: int | None,
    lag: int,
    resample: Resampler,
    future_density: FutureDensity | None,
    generator: Generator | None = None,
) -> SmoothedTrajectories:
    """All trajectories with the weights of their ends, or `n_trajectories` of them, drawn by these weights."""
    log_weights = history.log_weights[:, :, -1]
    if n_trajectories is None:
        return SmoothedTrajectories(trace_trajectories(history.ancestors), log_weights, ancestral=True)
    ends = resample(log_weights, n_trajectories, generator)
    equal = uniform_log_weights(log_weights.gather(1, ends))
    return SmoothedTrajectories(trace_trajectories(history.ancestors, ends), equal, ancestral=True)
