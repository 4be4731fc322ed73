"""Importance weights, kept as logarithms.

With incoming weights W_{t-1} and densities p(X_t | particle),

    log w_t = log W_{t-1} + log p(X_t | particle),    W_t = softmax(log w_t),

and the normaliser log sum_m w_t^m estimates log p(X_t | X_{<t}).
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


class WeightCollapseError(RuntimeError):
    """No particle of a sequence can explain an observation: all its weights are zero or not finite.

    `sequence` is the position of the sequence in the batch, `step` that of the observation on the time axis of `x`.
    """

    def __init__(self, sequence: int, step: int):
        super().__init__(
            f"all particle weights of sequence {sequence} are zero or not finite at step {step}: no particle can "
            f"explain the observation x[{sequence}, {step}]. Is it an outlier, are the inputs scaled, did "
            "training diverge, or is the observation variance too small? "
            'on_collapse="uniform" goes on with equal weights from there.'
        )
        self.sequence = sequence
        self.step = step


def uniform_log_weights(like: Float[Tensor, "batch particle"]) -> Float[Tensor, "batch particle"]:
    """Equal weights -log M, of the shape and type of `like`."""
    return torch.full_like(like, -math.log(like.shape[-1]))


def normalise(
    log_weights: Float[Tensor, "*batch particle"],
) -> tuple[Float[Tensor, "*batch particle"], Float[Tensor, "*batch"]]:
    """Normalised log-weights over the last axis, and the logarithm of the total."""
    # Not log_weights - log_total: for large logarithms that rounds to weights that do not sum to one.
    return torch.log_softmax(log_weights, dim=-1), torch.logsumexp(log_weights, dim=-1)


def effective_sample_size(log_weights: Float[Tensor, "*batch particle"]) -> Float[Tensor, "*batch"]:
    """1 / sum_m W_m^2 of normalised log-weights: M when they are equal, 1 when one particle has them all."""
    return torch.exp(-torch.logsumexp(2 * log_weights, dim=-1))


def reweight(
    log_weights: Float[Tensor, "batch particle"],
    log_density: Float[Tensor, "batch particle"],
    *,
    step: int | Int[Tensor, "batch"],
    on_collapse: str = "error",
) -> tuple[Float[Tensor, "batch particle"], Float[Tensor, "batch"]]:
    """The weights after an observation, and its log-likelihood increment log sum_m W_{t-1}^m p(X_t | particle m).

    Weights are normalised, before and after; a density that is NaN counts as zero. When a sequence has no weight left
    at this `step`, the time t (of all or of each), on_collapse="error" raises a `WeightCollapseError`; "uniform" gives
    that sequence equal weights and an increment of -inf, so that its likelihood stays honest.
    """
    log_density = torch.where(log_density.isnan(), -torch.inf, log_density)
    updated, increment = normalise(log_weights + log_density)
    collapsed = ~increment.isfinite()
    if collapsed.any():
        if on_collapse == "error":
            sequence = int(collapsed.nonzero()[0, 0])
            raise WeightCollapseError(sequence, step if isinstance(step, int) else int(step[sequence]))
        updated = torch.where(collapsed.unsqueeze(-1), uniform_log_weights(updated), updated)
        increment = torch.where(collapsed, -torch.inf, increment)
    return updated, increment
