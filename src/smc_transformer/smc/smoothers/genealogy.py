"""The ancestral trajectories of the last step (the paper's smoother).

Free, and exact for many particles; but trajectories have few ancestors: one or two particles stand for a step long ago.
"""

from smc_transformer.smc.genealogy import trace_trajectories
from smc_transformer.smc.smoothers.base import History, Request, SmoothedTrajectories, smoother
from smc_transformer.smc.weights import uniform_log_weights


@smoother
def genealogy(history: History, request: Request) -> SmoothedTrajectories:
    """All trajectories with the weights of their ends, or `n_trajectories` of them, drawn by these weights."""
    log_weights = history.log_weights[:, :, -1]
    if request.n_trajectories is None:
        return SmoothedTrajectories(trace_trajectories(history.ancestors), log_weights, ancestral=True)
    ends = request.resample(log_weights, request.n_trajectories, request.generator)
    equal = uniform_log_weights(log_weights.gather(1, ends))
    return SmoothedTrajectories(trace_trajectories(history.ancestors, ends), equal, ancestral=True)
