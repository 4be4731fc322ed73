"""Empirical distributions: equally likely draws, a point mass, and a shared set of residuals around any place.

They answer the same questions as a `predictive.Mixture` (mean, interval, cdf, crps, sample), but have no density.
Scores are those of the empirical distribution itself, without corrections for the number of draws.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.predictive import Interval, Predictive
from smc_transformer.smc.randomness import draw_uniform
from smc_transformer.support.randomness import Randomness, as_generator
from smc_transformer.support.threads import in_threads


class Samples(Predictive):
    """The empirical distribution of draws: equally likely values of each step and target, and no density.

    Example:
        >>> import torch
        >>> distribution = Samples(torch.arange(101.0).view(1, 101, 1, 1))
        >>> [end.item() for end in distribution.interval(0.9)]
        [5.0, 95.0]
        >>> round(distribution.cdf(torch.full((1, 1, 1), 24.5)).item(), 4)
        0.2475
    """

    def __init__(self, draws: Float[Tensor, "batch sample time target"]):
        self.draws = draws

    @cached_property
    def ordered(self) -> Float[Tensor, "batch time target sample"]:
        """The draws of each step and target in ascending order."""
        rows = np.array(self.draws.movedim(1, -1).numpy(), order="C")  # a copy, to be sorted in place
        in_threads(lambda chosen: rows[chosen].sort(axis=-1), len(rows))  # numpy sorts short rows faster than torch
        return torch.from_numpy(rows)

    @property
    def mean(self) -> Float[Tensor, "batch time target"]:
        """Mean of the draws."""
        return self.draws.mean(dim=1)

    def quantile(self, p: float) -> Float[Tensor, "batch time target"]:
        """The p-quantile, linear between neighbouring draws."""
        return _quantile(self.ordered, p)

    def interval(self, level: float = 0.95) -> Interval:
        """Lower and upper end of the central interval that holds `level` of the probability."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def cdf(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """Share of the draws below x, those equal to it counted half."""
        below, up_to = self._shares(x)
        return (below + up_to) / 2

    def pit(
        self, x: Float[Tensor, "batch time target"], generator: Randomness = None
    ) -> Float[Tensor, "batch time target"]:
        """The probability integral transform: uniform when the forecasts are calibrated, whatever the distribution.

        Where draws are equal to x (whole numbers, a mass at zero) it is drawn between P(X < x) and P(X <= x).
        """
        below, up_to = self._shares(x)
        return below + draw_uniform(tuple(x.shape), x, as_generator(generator)) * (up_to - below)

    def _shares(
        self, x: Float[Tensor, "batch time target"]
    ) -> tuple[Float[Tensor, "batch time target"], Float[Tensor, "batch time target"]]:
        """Shares of the draws below x, and not above it."""
        value, n_draws = x.unsqueeze(-1).contiguous(), self.ordered.shape[-1]
        below = torch.searchsorted(self.ordered, value, side="left")
        up_to = torch.searchsorted(self.ordered, value, side="right")
        return (below.to(x) / n_draws).squeeze(-1), (up_to.to(x) / n_draws).squeeze(-1)

    def crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """Continuous ranked probability score of each target: E|X - x| - E|X - X'| / 2, in linear time once sorted."""
        n_draws = self.ordered.shape[-1]
        ranks = torch.arange(1, n_draws + 1).to(x)
        error = (self.ordered - x.unsqueeze(-1)).abs_().mean(dim=-1)
        # Not a matrix product: on some processors it sums a row in another order where other rows are beside it.
        return error - (self.ordered * ((2 * ranks - n_draws - 1) / n_draws**2)).sum(dim=-1)

    def sample(self, n_samples: int, generator: Randomness = None) -> Float[Tensor, "batch sample time target"]:
        """Draws with replacement, each whole over steps and targets."""
        batch, n_draws = self.draws.shape[:2]
        chosen = torch.randint(n_draws, (batch, n_samples), generator=as_generator(generator))
        return self.draws[torch.arange(batch).unsqueeze(1), chosen]


class Point(Predictive):
    """All probability at one point: what a deterministic model predicts.

    It claims no uncertainty: it has neither an interval worth the name nor a cdf nor a density.
    """

    def __init__(self, mean: Float[Tensor, "batch time target"]):
        self.location = mean

    @property
    def mean(self) -> Float[Tensor, "batch time target"]:
        return self.location

    def crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """The absolute error, which is what the score comes to for a point mass."""
        return (self.mean - x).abs()

    def sample(self, n_samples: int, generator: Randomness = None) -> Float[Tensor, "batch sample time target"]:
        """The point again and again."""
        del generator
        return self.mean.unsqueeze(1).expand(-1, n_samples, -1, -1)


class Residuals:
    """The empirical distribution of residual rows (those seen together), sorted once, with running sums."""

    def __init__(self, rows: Float[Tensor, "draw target"]):
        if len(rows) == 0:
            raise ValueError("no complete row of residuals: every one has a missing value")
        self.rows = rows
        self.ordered = torch.from_numpy(np.sort(rows.double().T.contiguous().numpy(), axis=-1))
        self.mean = self.ordered.mean(dim=-1).to(rows)
        self.sums = torch.nn.functional.pad(self.ordered.cumsum(dim=-1), (1, 0))
        n_draws = len(rows)
        ranks = torch.arange(1, n_draws + 1, dtype=torch.float64)
        # E|R - R'| / 2 from the order statistics.
        self.half_mean_difference = self.ordered @ (2 * ranks - n_draws - 1) / n_draws**2

    def quantile(self, p: float) -> Float[Tensor, "target"]:
        """The p-quantile of each target, linear between neighbours."""
        return _quantile(self.ordered, p).to(self.rows)

    def cdf(self, x: Float[Tensor, "place target"]) -> Float[Tensor, "place target"]:
        """Share of the residuals below x, those equal to it counted half."""
        ranks = self._count(x, "left") + self._count(x, "right")
        return (ranks.double() / (2 * len(self.rows))).to(x).T

    def crps(self, x: Float[Tensor, "place target"]) -> Float[Tensor, "place target"]:
        """E|R - x| - E|R - R'| / 2, in time logarithmic in the number of residuals."""
        n_below = self._count(x, "right")
        below, total = self.sums.gather(1, n_below), self.sums[:, -1:]
        value, n_draws = x.double().T, len(self.rows)
        error = (value * (2 * n_below - n_draws) + total - 2 * below) / n_draws
        return (error - self.half_mean_difference.unsqueeze(1)).to(x).T

    def _count(self, x: Float[Tensor, "place target"], side: str) -> Int[Tensor, "target place"]:
        """How many residuals are below x ("left"), or not above it ("right")."""
        return torch.searchsorted(self.ordered, x.double().T.contiguous(), side=side)


class ShiftedResiduals(Predictive):
    """Residuals around a location of each step: the distribution of location + a random residual row, without density.

    The residuals are shared by all windows, so that the whole training set of them costs nothing to keep: quantiles
    only shift with the location. `which` says for each step which of the distributions of residuals it has.
    """

    def __init__(
        self, location: Float[Tensor, "batch time target"], residuals: Sequence[Residuals], which: Sequence[int]
    ):
        n_steps = location.shape[1]
        if len(which) != n_steps:
            raise ValueError(f"expected one distribution of residuals for each of {n_steps} steps, got {len(which)}")
        self.location = location
        self.residuals = [residuals[number] for number in which]

    @property
    def mean(self) -> Float[Tensor, "batch time target"]:
        """Location plus mean residual."""
        return self.location + torch.stack([distribution.mean for distribution in self.residuals])

    def quantile(self, p: float) -> Float[Tensor, "batch time target"]:
        """Location plus quantile of the residuals."""
        return self.location + torch.stack([distribution.quantile(p) for distribution in self.residuals])

    def interval(self, level: float = 0.95) -> Interval:
        """Lower and upper end of the central interval that holds `level` of the probability."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def cdf(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """Share of the residuals that reach no further than x, ties counted half."""
        distance = x - self.location
        return torch.stack([distribution.cdf(distance[:, t]) for t, distribution in enumerate(self.residuals)], dim=1)

    def crps(self, x: Float[Tensor, "batch time target"]) -> Float[Tensor, "batch time target"]:
        """Continuous ranked probability score of each target."""
        distance = x - self.location
        return torch.stack([distribution.crps(distance[:, t]) for t, distribution in enumerate(self.residuals)], dim=1)

    def sample(self, n_samples: int, generator: Randomness = None) -> Float[Tensor, "batch sample time target"]:
        """Whole rows of residuals, around the location; steps are independent."""
        generator, size = as_generator(generator), (len(self.location), n_samples)
        of_steps = [distribution.rows for distribution in self.residuals]
        drawn = [rows[torch.randint(len(rows), size, generator=generator)] for rows in of_steps]
        return self.location.unsqueeze(1) + torch.stack(drawn, dim=2)


def _quantile(ordered: Float[Tensor, "*batch draw"], p: float) -> Float[Tensor, "*batch"]:
    """The p-quantile of ordered draws, linear between neighbours."""
    place = p * (ordered.shape[-1] - 1)
    below = int(place)
    above = min(below + 1, ordered.shape[-1] - 1)
    return torch.lerp(ordered[..., below], ordered[..., above], place - below)
