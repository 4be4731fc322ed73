"""Observations that often do not change at all: a Student-t with a spike at the last value.

With the probability p_j = sigmoid(logit_j) target j stays at its last value a_j, whatever the others do; all that move
follow the multivariate t of `student_t.py`. A t never hits a_j, so what is observed says which targets have stayed:
given the set N of those that have moved,

    p(x) = prod_{j not in N} p_j  prod_{j in N} (1 - p_j)  t_N(x_N).

This is a probability for each target that stays, a density for each that moves: it can be compared between models with
this spike, not with densities of distributions that have none.

Not for values of which two that should be equal are rounded differently: they count as a change.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.nn import functional as F

from smc_transformer.nn.observation.base import ObservationModel, weighted_mean, weighted_second_moment
from smc_transformer.nn.observation.masked import observed_sum, squared_norm
from smc_transformer.nn.observation.scaled import ScaleStatistics
from smc_transformer.nn.observation.student_t import StudentTComponents, StudentTObservation
from smc_transformer.predictive import CRPS_NODES, Components, Mixture
from smc_transformer.smc.randomness import draw_uniform
from smc_transformer.support.randomness import Randomness, as_generator


class ZeroInflatedComponents(Components):
    """Each target stays at `last` with the probability sigmoid(logit); those that do not follow `moving`."""

    def __init__(
        self, moving: StudentTComponents, logit: Float[Tensor, "*batch target"], last: Float[Tensor, "*batch target"]
    ):
        self.moving, self.logit, self.last = moving, logit, last

    @property
    def stay(self) -> Float[Tensor, "*batch target"]:
        """The probability of no change."""
        return self.logit.sigmoid()

    @property
    def mean(self) -> Float[Tensor, "*batch target"]:
        return self.moving.mean + self.stay * (self.last - self.moving.mean)

    @property
    def variance(self) -> Float[Tensor, "*batch target"]:
        between = self.stay * (1 - self.stay) * (self.last - self.moving.mean).square()
        return (1 - self.stay) * self.moving.variance + between

    @property
    def covariance(self) -> Float[Tensor, "*batch target target"]:
        move = 1 - self.stay
        both = move.unsqueeze(-1) * move.unsqueeze(-2) * self.moving.covariance
        return torch.diagonal_scatter(both, self.variance, dim1=-2, dim2=-1)

    def log_prob(
        self, x: Float[Tensor, "*#batch target"], observed: Bool[Tensor, "*#batch target"] | None = None
    ) -> Float[Tensor, "*batch"]:
        moved = x != self.last
        of_spike = torch.where(moved, F.logsigmoid(-self.logit), F.logsigmoid(self.logit))
        seen = moved if observed is None else moved & observed
        return observed_sum(of_spike, observed) + self.moving.log_prob(x, seen)

    def cdf(self, x: Float[Tensor, "*#batch target"]) -> Float[Tensor, "*#batch target"]:
        return (1 - self.stay) * self.moving.cdf(x) + self.stay * (x >= self.last)

    def mass_at(self, x: Float[Tensor, "*#batch target"]) -> Float[Tensor, "*#batch target"]:
        """P(X = x) of each target."""
        return self.stay * (x == self.last)

    def sample(self, generator: Generator | None = None) -> Float[Tensor, "*batch target"]:
        return self._spiked(self.moving.sample(generator), generator)

    def complete(
        self,
        x: Float[Tensor, "*#batch target"],
        observed: Bool[Tensor, "*#batch target"],
        generator: Generator | None = None,
    ) -> Float[Tensor, "*batch target"]:
        # Only a target that has moved tells anything about the others.
        drawn = self.moving.complete(x, observed & (x != self.last), generator)
        return torch.where(observed, x, self._spiked(drawn, generator))

    def _spiked(
        self, drawn: Float[Tensor, "*batch target"], generator: Generator | None
    ) -> Float[Tensor, "*batch target"]:
        """Draws of those that move, or the last value where a target stays."""
        stays = draw_uniform(tuple(drawn.shape), drawn, generator) < self.stay
        if torch.is_grad_enabled() and self.logit.requires_grad:
            drawn = drawn + (self.logit - self.logit.detach()) * self._slope(drawn.detach())
        return torch.where(stays, self.last, drawn)

    @torch.no_grad()
    def _slope(self, x: Float[Tensor, "*batch target"]) -> Float[Tensor, "*batch target"]:
        """How draws that move depend on the logit, given the other targets: dx/dlogit for a fixed quantile.

        A choice between staying and moving has no gradient, but the quantile function of both together has one. With
        the cdf G and the density g of x_j given all other draws: (1 - p) G(x) is fixed for x below a, and
        (1 - p) (1 - G(x)) above it, so that dx/dlogit = p G / g and -p (1 - G) / g; a draw at the spike stays there.
        """
        from scipy.special import stdtr

        moving = self.moving
        precision = torch.cholesky_inverse(moving.root)
        residual = (x - moving.location) / moving.scale
        pulled, own = residual @ precision, precision.diagonal().sqrt()
        # x_j given the others is a t with as many degrees of freedom more as there are others.
        rest = (residual * pulled).sum(dim=-1, keepdim=True) - (pulled / own).square()
        degrees = moving.degrees + x.shape[-1] - 1
        factor = (degrees / (moving.degrees + rest)).sqrt()
        standard, width = pulled / own * factor, moving.scale / (own * factor)
        side = torch.where(x < self.last, 1.0, -1.0).to(x)
        tail = torch.from_numpy(np.asarray(stdtr(degrees.item(), (side * standard).double().cpu().numpy()))).to(x)
        constant = torch.lgamma((degrees + 1) / 2) - torch.lgamma(degrees / 2) - 0.5 * torch.log(np.pi * degrees)
        density = (constant - 0.5 * (degrees + 1) * torch.log1p(standard.square() / degrees)).exp()
        return side * self.stay * width * tail / density


class ZeroInflatedMixture(Mixture):
    """A mixture of distributions with spikes, which all answers treat as what they are: jumps of the cdf."""

    components: ZeroInflatedComponents

    def pit(
        self, x: Float[Tensor, "batch time target"], generator: Randomness = None
    ) -> Float[Tensor, "batch time target"]:
        """The probability integral transform, drawn between P(X < x) and P(X <= x)."""
        mass = (self.weights * self.components.mass_at(x.unsqueeze(-3))).sum(dim=-3)
        return self.cdf(x) - mass * draw_uniform(tuple(x.shape), x, as_generator(generator, x.device))

    def _quantile(self, p: float) -> Float[Tensor, "batch time target"]:
        # Bisection ends next to a jump: the value at which it is, to the bit, is what equals observations.
        lower, upper = self._bracket(p)
        last = self.components.last
        jumps = (lower.unsqueeze(1) < last) & (last <= upper.unsqueeze(1))
        first = torch.where(jumps, last, torch.inf).amin(dim=1)
        return torch.where(first.isinf(), (lower + upper) / 2, first)

    def _integrated_crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """The integral, piece by piece between x and the spikes, with nodes that are dense at the ends of each.

        Exact to rounding where all particles have one spike. After a gap each has its own: the many small jumps
        between the outermost are met by nodes only.
        """
        last, deviation = self.components.last, self.variance.sqrt()
        ends = torch.stack((x, last.amin(dim=1), last.amax(dim=1))).sort(dim=0).values
        # A mean of logarithms: a single wide component must not blow it up.
        scale = (self.weights * self.components.moving.width.log()).sum(dim=1).exp()
        reach = 200 * deviation + (ends - self.mean).abs().amax(dim=0)
        halves = ends.diff(dim=0) / 2
        total = torch.zeros_like(x)
        for start, length in ((ends[0], -reach), (ends[2], reach), *zip(ends[:2], halves, strict=True)):
            total += self._piece(x, start, length, scale)
        for start, length in zip(ends[1:], halves, strict=True):
            total += self._piece(x, start, -length, scale)
        return total

    def _piece(self, x: Tensor, start: Tensor, length: Tensor, scale: Tensor) -> Float[Tensor, "batch time target"]:
        """The integral of (F(y) - 1{y >= x})^2 over a length on one side of `start`, at distances scale * sinh(u)."""
        reach, total = torch.asinh(length / scale), torch.zeros_like(x)
        for node, weight in zip(*np.polynomial.legendre.leggauss(CRPS_NODES), strict=True):
            u = reach * float(node + 1) / 2
            y = start + scale * u.sinh()
            total += float(weight) / 2 * (self.cdf(y) - (y >= x).to(y)).square() * u.cosh()
        return total * scale * reach.abs()


class SpikeStatistics(NamedTuple):
    """What EM needs of a batch: the statistics of targets that moved, zero for others, and how often pairs have."""

    moving: ScaleStatistics
    pairs: Float[Tensor, "target target"]  # the share of steps at which both targets moved


class ZeroInflatedObservation(ObservationModel):
    """Locations, log-scales and the logit of no change from the read-out; the distribution of moves learns as any t.

    The spike is at the last value, so the model must have `predict_change`. A fourth part of the parameters holds that
    value; what the read-out gives there does not count. `variance` is the initial square of the scales, `degrees` the
    initial degrees of freedom.
    """

    needs_shift = True
    mixture_type = ZeroInflatedMixture

    def __init__(self, n_targets: int, variance: float = 0.5, degrees: float = 8.0):
        super().__init__(n_targets, n_parameters=4 * n_targets)
        self.moving = StudentTObservation(n_targets, variance, degrees)

    def initial_parameters(self) -> Float[Tensor, "n_parameters"]:
        return torch.cat((self.moving.initial_parameters(), torch.zeros(2 * self.n_targets)))

    def components(self, parameters: Float[Tensor, "*batch n_parameters"]) -> ZeroInflatedComponents:
        moves, logit, last = self._parts(parameters)
        return ZeroInflatedComponents(self.moving.components(moves), logit, last)

    def shift(
        self, parameters: Float[Tensor, "*batch n_parameters"], last_targets: Float[Tensor, "*#batch n_targets"]
    ) -> Float[Tensor, "*batch n_parameters"]:
        moves, logit, unused = self._parts(parameters)
        return torch.cat((self.moving.shift(moves, last_targets), logit, last_targets.expand_as(unused)), dim=-1)

    def widen_(self, factor: float) -> None:
        self.moving.widen_(factor)

    def statistics(
        self,
        targets: Float[Tensor, "batch #trajectory time n_targets"],
        parameters: Float[Tensor, "batch trajectory time n_parameters"],
        weights: Float[Tensor, "batch trajectory"],
    ) -> SpikeStatistics:
        moves, _, last = self._parts(parameters)
        moved = targets != last
        location, scale = self.moving.location_and_scale(moves)
        residuals = torch.where(moved, (targets - location) / scale, 0.0)
        # E[g | X] as for the Student-t, but the precision g is known from the targets that have moved alone.
        norm, _ = squared_norm(residuals, self.moving.root(), moved)
        precision = (self.moving.degrees + moved.sum(dim=-1)) / (self.moving.degrees + norm)
        moment = weighted_second_moment(residuals * precision.sqrt().unsqueeze(-1), weights)
        pairs = weighted_second_moment(moved.to(residuals), weights)
        return SpikeStatistics(ScaleStatistics(moment, *self.moving.range_of_scales(moves)), pairs)

    def forecast_statistics(self, parameters: Float[Tensor, "batch path horizon n_parameters"]) -> SpikeStatistics:
        return SpikeStatistics(
            self.moving.forecast_statistics(self._parts(parameters)[0]), torch.ones_like(self.moving.correlation)
        )

    def merge(self, statistics: list[SpikeStatistics], shares: list[float]) -> SpikeStatistics:
        pairs = weighted_mean([part.pairs for part in statistics], shares)
        return SpikeStatistics(self.moving.merge([part.moving for part in statistics], shares), pairs)

    @torch.no_grad()
    def em_step_(self, statistics: SpikeStatistics, step_size: float) -> None:
        # The mean over the steps at which both have moved; a pair that never has stays as correlated as it was.
        moving, pairs = statistics
        seen = torch.where(pairs > 0, moving.correlation / pairs, self.moving.correlation)
        self.moving.em_step_(moving._replace(correlation=seen), step_size)

    def _parts(
        self, parameters: Float[Tensor, "*batch n_parameters"]
    ) -> tuple[Float[Tensor, "*batch of_moves"], Float[Tensor, "*batch n_targets"], Float[Tensor, "*batch n_targets"]]:
        """Parameters of the moves, the logits of no change, and the last values."""
        moves, logit, last = parameters.split((2 * self.n_targets, self.n_targets, self.n_targets), dim=-1)
        return moves, logit, last
