"""Whether a path is on its way to a value that is given further ahead: a guess that guides the selection of particles.

For the next given values g after step t, pilot paths, drawn without regard to what is given, tell how these coordinates
X_r depend on X_t. Their regression is the guess

    psi_t(x) = N(g; A + B x, S),    X_r = A + B X_t + residual,    S = covariance of the residuals.

Particles that are weighted by psi_t / psi_{t-1} at each step have paid all of it back when the values are reached, so a
bad guess costs particles, but biases nothing (Del Moral and Murray, 2015, call it guided intermediate resampling).
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

RIDGE = 1e-6
"""Added to the variances of the regression, as a share of them: a coordinate may never change."""


class Lookahead:
    """The guess log psi_t(x_t); 0 for sequences of which nothing is given after t.

    Args:
        pilots: paths that were drawn without regard to what is given.
        given: values ahead; NaN where nothing is given.
    """

    def __init__(
        self,
        pilots: Float[Tensor, "batch pilot horizon n_targets"],
        given: Float[Tensor, "batch horizon n_targets"],
    ):
        self.pilots = pilots.double()
        self.given = given.double()

    def __call__(self, step: int, x: Float[Tensor, "batch #particle n_targets"]) -> Float[Tensor, "batch #particle"]:
        """Log psi of particles that are at x after a step (counted from 0)."""
        rows = self._next_given(step)
        batch = torch.arange(len(rows))
        target = self.given[batch, rows]
        seen = ~target.isnan() & (rows > step).unsqueeze(-1)
        if not seen.any():
            return x.new_zeros(x.shape[:2])
        now, later = self.pilots[:, :, step], self.pilots[batch, :, rows]
        middle, later_middle = now.mean(dim=1, keepdim=True), later.mean(dim=1, keepdim=True)
        now, later = now - middle, later - later_middle
        slope = torch.linalg.solve(_stabilised(_moment(now, now)), _moment(now, later))
        spread = _masked(_stabilised(_moment(later - now @ slope, later - now @ slope)), seen)
        miss = target.nan_to_num(0.0).unsqueeze(1) - later_middle - (x.double() - middle) @ slope
        miss = miss.where(seen.unsqueeze(1), 0.0)
        root = torch.linalg.cholesky(spread)
        standard = torch.linalg.solve_triangular(root, miss.transpose(1, 2), upper=False)
        constants = root.diagonal(dim1=-2, dim2=-1).log() + 0.5 * math.log(2 * math.pi)
        density = -0.5 * standard.square().sum(dim=1) - (constants * seen).sum(dim=-1, keepdim=True)
        return density.to(x)

    def _next_given(self, step: int) -> Int[Tensor, "batch"]:
        """The first step after this one of which something is given, of each sequence; this one if there is none."""
        ahead = (~self.given.isnan()).any(dim=-1)
        ahead[:, : step + 1] = False
        return torch.where(ahead.any(dim=-1), ahead.int().argmax(dim=-1), step)


def _moment(
    one: Float[Tensor, "batch pilot n_targets"], other: Float[Tensor, "batch pilot n_targets"]
) -> Float[Tensor, "batch n_targets n_targets"]:
    return one.transpose(1, 2) @ other / one.shape[1]


def _stabilised(moment: Float[Tensor, "batch n_targets n_targets"]) -> Float[Tensor, "batch n_targets n_targets"]:
    """A covariance that can be inverted."""
    variances = moment.diagonal(dim1=-2, dim2=-1)
    return moment + torch.diag_embed(RIDGE * variances + torch.finfo(moment.dtype).tiny ** 0.5)


def _masked(
    covariance: Float[Tensor, "batch n_targets n_targets"], seen: Bool[Tensor, "batch n_targets"]
) -> Float[Tensor, "batch n_targets n_targets"]:
    """The covariance of the coordinates that are seen; the others are independent and of variance 1."""
    both = seen.unsqueeze(-1) & seen.unsqueeze(-2)
    return covariance.where(both, torch.diag_embed((~seen).to(covariance)))
