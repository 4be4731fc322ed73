"""Smoothing: weighted lines that stand for the law of all latents given all observations."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.smc.genealogy import trace_lines
from smc_transformer.smc.resampling import Resampler
from smc_transformer.smc.weights import uniform_log_weights


class SmoothingLines(NamedTuple):
    """Weighted lines through the particles: `lines[b, l, t]` is the particle that line l uses at step t."""

    lines: Int[Tensor, "batch line time"]
    log_weights: Float[Tensor, "batch line"]


def genealogy(
    ancestors: Int[Tensor, "batch particle time"],
    log_weights: Float[Tensor, "batch particle"],
    n_lines: int | None,
    resample: Resampler,
    generator: Generator | None = None,
) -> SmoothingLines:
    """The ancestral lines of the last step (the paper's smoother).

    Args:
        ancestors: parent of each particle at each step.
        log_weights: normalised log-weights of the last step.
        n_lines: None traces every particle and keeps the weights; a number draws that many by their weights.
        resample: the scheme that draws them.
        generator: source of randomness for the draw.
    """
    if n_lines is None:
        return SmoothingLines(trace_lines(ancestors), log_weights)
    ends = resample(log_weights, n_lines, generator)
    return SmoothingLines(trace_lines(ancestors, ends), uniform_log_weights(log_weights.gather(1, ends)))
