"""The ancestral lines of the last step (the paper's smoother).

Free, and exact for many particles; but lines have few ancestors: one or two particles stand for a step long ago.
"""

from torch import Generator

from smc_transformer.smc.genealogy import trace_lines
from smc_transformer.smc.resampling import Resampler
from smc_transformer.smc.smoothers.base import History, LookAhead, SmoothingLines, smoother
from smc_transformer.smc.weights import uniform_log_weights


@smoother
def genealogy(
    history: History,
    n_lines: int | None,
    lag: int,
    resample: Resampler,
    look_ahead: LookAhead | None,
    generator: Generator | None = None,
) -> SmoothingLines:
    """All lines with the weights of their ends, or `n_lines` of them, drawn by these weights."""
    log_weights = history.log_weights[:, :, -1]
    if n_lines is None:
        return SmoothingLines(trace_lines(history.ancestors), log_weights, ancestral=True)
    ends = resample(log_weights, n_lines, generator)
    equal = uniform_log_weights(log_weights.gather(1, ends))
    return SmoothingLines(trace_lines(history.ancestors, ends), equal, ancestral=True)
