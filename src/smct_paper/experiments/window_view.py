"""The local view of a window: what simple forecasts leave unexplained, in units of their recent errors.

    y_t = anchor_t + unit_t * g(x_t)

Anchor and unit are known before y_t, g is a fixed increasing map: values, paths and densities (by the Jacobian) go
back exactly. Windows of the paper's protocol have 7 to 41 rows before the horizon, too few for the candidates of
`smc_transformer.forecaster.view` to be weighted by their errors in the same window, and shorter than a season. So
the weights come from training windows:

anchor   the last value, plus what a linear regression on smoothed levels, the last two changes and (where validation
         windows say so) the distance from the mean of training expects of the next h rows. A horizon is seen from its
         beginning: rows after the cutoff have anchors of h = 1, 2, ... steps, and the deviation of the row before from
         its own anchor persists by a share rho_h: widths grow with the horizon as errors do.
unit     the expected absolute error of that anchor, by a linear regression on recent absolute errors.
g        the quantiles of training errors in that unit at those of a normal distribution: constant Gaussian noise
         becomes as heavy-tailed as the errors are.

All constants are the column's own. Nothing is known of a window but its rows up to the cutoff.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from smc_transformer.learning.recipe import evenly_spaced
from smct_paper.baselines.base import fill_forward

LEVEL_RATES = (0.1, 0.3, 0.6)
ERROR_RATES = (0.15, 0.5)
RIDGE = 1e-3
"""As a share of each regressor's mean square."""
LEAST_UNIT = 0.1
"""Of the column's typical one-step error."""
QUANTILES, WIDEST = 97, 3.5
"""Knots of g, evenly spaced in x up to this; fewer errors than reach so far have nearer ends."""
WINDOWS_TO_FIT = 8000
TINY = 1e-6


def constants() -> dict[str, Any]:
    """All that is fixed before any data are seen, as JSON can hold it."""
    rates = {"level_rates": list(LEVEL_RATES), "error_rates": list(ERROR_RATES)}
    least = {"ridge": RIDGE, "least_unit": LEAST_UNIT}
    return {**rates, **least, "quantiles": QUANTILES, "widest": WIDEST, "windows_to_fit": WINDOWS_TO_FIT}


class Seen(NamedTuple):
    """What the view says of rows t = 1, ..., T before they are seen, by what is known at the cutoff."""

    anchor: Float[Tensor, "window time column"]
    rho: Float[Tensor, "time column"]  # share of the last row's deviation from its anchor that persists
    unit: Float[Tensor, "window time column"]
    features: Float[Tensor, "window time feature"]  # given to the network: steps ahead, and the last value's place


class WindowView(NamedTuple):
    """The constants, from training windows; the axis "ahead" is h = 1, ..., horizon after the cutoff."""

    history: int  # H: the cutoff by which the constants of the horizon are fitted
    one_step: Float[Tensor, "column regressor"]  # of the expected change, one step ahead of any row
    ahead: Float[Tensor, "ahead column regressor"]  # likewise, of the horizon
    rho: Float[Tensor, "ahead column"]
    typical: Float[Tensor, "column"]  # absolute one-step error
    one_step_unit: Float[Tensor, "column size"]
    ahead_unit: Float[Tensor, "ahead column size"]
    normal: Float[Tensor, "quantile"]
    errors: Float[Tensor, "column quantile"]  # at the same probabilities, in units

    @classmethod
    def fit(
        cls,
        train: Float[Tensor, "window time_plus_1 column"],
        validation: Float[Tensor, "validation_window time_plus_1 column"],
        history: int,
    ) -> "WindowView":
        """Constants from training windows; validation windows only say whose mean is worth returning to."""
        x = train[evenly_spaced(len(train), WINDOWS_TO_FIT)]
        to_mean = _returns_to_mean(x, validation, history)
        one_step, ahead = _expected_changes(x, history, to_mean)
        n_columns, horizon = x.shape[-1], x.shape[1] - 1 - history
        standard = torch.distributions.Normal(0.0, 1.0)
        end = standard.icdf(torch.tensor(1 - 5 / (len(x) * (x.shape[1] - 1 + horizon)))).clamp(0.5, WIDEST)
        normal = torch.linspace(-1.0, 1.0, QUANTILES) * end
        normal = torch.cat((normal[:1] - 1, normal, normal[-1:] + 1))
        view = cls(
            history, one_step, ahead, x.new_zeros(horizon, n_columns), x.new_ones(n_columns),
            x.new_ones(n_columns, 2 + len(ERROR_RATES)), x.new_ones(horizon, n_columns, 2 + len(ERROR_RATES)),
            normal, normal.expand(n_columns, -1),
        )  # fmt: skip
        filled = fill_forward(x)
        design = _design(filled)
        errors = view._one_step_errors(x, filled, design)
        view = view._replace(typical=errors[:, 1:].abs().nanmean(dim=(0, 1)).clamp(min=TINY))
        sizes = view._sizes(errors)
        one_step_unit = _least_squares(sizes[:, :-1].flatten(0, 1), errors[:, 1:].abs().flatten(0, 1))
        deviations = x[:, history + 1 :] - _ahead_anchors(filled, design, history, ahead)
        rho = torch.stack([_share(deviations, step) for step in range(horizon)])
        new = deviations - rho * torch.cat((torch.zeros_like(deviations[:, :1]), deviations[:, :-1]), dim=1)
        ahead_unit = torch.stack([_least_squares(sizes[:, history], new[:, step].abs()) for step in range(horizon)])
        view = view._replace(rho=rho, one_step_unit=one_step_unit, ahead_unit=ahead_unit)
        in_units = [
            (errors[:, 1:] / view._unit(one_step_unit, sizes[:, :-1])).flatten(0, 1),
            (new / view._unit(ahead_unit, sizes[:, history, None])).flatten(0, 1),
        ]
        return view._replace(errors=_quantiles(torch.cat(in_units), standard.cdf(normal)))

    @property
    def n_features(self) -> int:
        """Features of a row, known before it: one for all columns and one for each."""
        return 1 + len(self.typical)

    def look(self, x: Float[Tensor, "window rows column"], horizon: int) -> Seen:
        """Rows 1, 2, ... of windows, each from the row before it, and `horizon` rows after them from the last."""
        filled = fill_forward(x)
        design = _design(filled)
        sizes = self._sizes(self._one_step_errors(x, filled, design))
        anchor = filled[:, :-1] + _weighted(self.one_step, design[:, :-1])
        unit = self._unit(self.one_step_unit, sizes[:, :-1])
        last = filled[:, :-1]
        steps = x.new_ones(x.shape[1] - 1)
        rho = x.new_zeros(anchor.shape[1:])
        if horizon > 0:
            row = x.shape[1] - 1
            ahead = _ahead_anchors(filled, design, row, self.ahead[:horizon])
            anchor = torch.cat((anchor, ahead), dim=1)
            unit = torch.cat((unit, self._unit(self.ahead_unit[:horizon], sizes[:, row, None])), dim=1)
            last = torch.cat((last, filled[:, -1:].expand_as(ahead)), dim=1)
            steps = torch.cat((steps, torch.arange(1, horizon + 1)))
            rho = torch.cat((rho, self.rho[:horizon]))
        told = (2 * steps.log() / torch.tensor(len(self.ahead) + 1.0).log()).view(1, -1, 1).expand(len(x), -1, 1)
        return Seen(anchor, rho, unit, torch.cat((told, torch.asinh((last - anchor) / unit)), dim=-1))

    def rows(
        self, x: Float[Tensor, "window time_plus_1 column"], cutoff: int | None = None
    ) -> Float[Tensor, "window time_plus_1 input"]:
        """Windows as the network reads them: x_t, then the features of row t + 1. After the cutoff: seen from there.

        The first row is its own anchor. NaN stays NaN.
        """
        known = x if cutoff is None else x[:, : cutoff + 1]
        seen = self.look(known, x.shape[1] - known.shape[1])
        deviation = x[:, 1:] - seen.anchor
        before = torch.cat((torch.zeros_like(deviation[:, :1]), deviation[:, :-1]), dim=1)
        # Where the last row is missing, its anchor is what is known of it.
        values = self.to_normal((deviation - seen.rho * before.nan_to_num(0.0)) / seen.unit)
        values = torch.cat((torch.zeros_like(x[:, :1]), values), dim=1)
        features = torch.cat((seen.features, torch.zeros_like(seen.features[:, :1])), dim=1)
        return torch.cat((values, features), dim=-1)

    def paths_back(
        self, paths: Float[Tensor, "window path horizon modelled"], seen: Seen
    ) -> Float[Tensor, "window path horizon modelled"]:
        """Paths of x after the cutoff in the units of the windows; `seen` is what `look` said at the cutoff."""
        horizon, n_modelled = paths.shape[2:]
        anchor, unit = (part[:, -horizon:, :n_modelled] for part in (seen.anchor, seen.unit))
        deviations = self.from_normal(paths) * unit.unsqueeze(1)
        for step in range(1, horizon):
            deviations[:, :, step] += seen.rho[step - horizon, :n_modelled] * deviations[:, :, step - 1]
        return anchor.unsqueeze(1) + deviations

    def to_normal(self, errors: Float[Tensor, "*batch column"]) -> Float[Tensor, "*batch column"]:
        """The inverse of g."""
        return _interpolate(errors, self._knots(errors.shape[-1]), self.normal.expand(errors.shape[-1], -1))

    def from_normal(self, x: Float[Tensor, "*batch column"]) -> Float[Tensor, "*batch column"]:
        """The map g, of the first columns, as many as x has."""
        return _interpolate(x, self.normal.expand(x.shape[-1], -1).contiguous(), self._knots(x.shape[-1]))

    def log_slope(self, errors: Float[Tensor, "*batch column"]) -> Float[Tensor, "*batch column"]:
        """The logarithm of the derivative of g^-1."""
        knots = self._knots(errors.shape[-1])
        slopes = self.normal.diff() / knots.diff(dim=-1)
        flat = errors.reshape(-1, errors.shape[-1]).T.contiguous().nan_to_num(0.0)
        return slopes.log().gather(1, _segment(knots, flat)).T.reshape(errors.shape)

    def _knots(self, n_columns: int) -> Float[Tensor, "column quantile"]:
        return self.errors[:n_columns].contiguous()

    def _one_step_errors(self, x: Tensor, filled: Tensor, design: Tensor) -> Float[Tensor, "window rows column"]:
        """Errors of the one-step anchors; 0 at the first row, which has none, and NaN where a value is missing."""
        errors = x[:, 1:] - filled[:, :-1] - _weighted(self.one_step, design[:, :-1])
        return torch.cat((torch.zeros_like(x[:, :1]), errors), dim=1)

    def _sizes(self, errors: Float[Tensor, "window rows column"]) -> Float[Tensor, "window rows column size"]:
        """What units are regressed on: 1, running means of the column's own absolute errors, and one of all columns."""
        relative, rates = errors.abs() / self.typical, errors.new_tensor(ERROR_RATES)
        mean = errors.new_ones(*errors[:, 0].shape, len(ERROR_RATES))
        found = [mean]
        for now in relative[:, 1:].unbind(1):
            mean = torch.where(now.isnan().unsqueeze(-1), mean, mean + rates * (now.unsqueeze(-1) - mean))
            found.append(mean)
        own = torch.stack(found, dim=1)
        pooled = own[..., :1].mean(dim=2, keepdim=True).expand_as(own[..., :1])
        return torch.cat((torch.ones_like(pooled), own, pooled), dim=-1)

    def _unit(self, weights: Float[Tensor, "... column size"], sizes: Float[Tensor, "... column size"]) -> Tensor:
        return torch.maximum((weights * sizes).sum(dim=-1), LEAST_UNIT * self.typical)


def _design(filled: Float[Tensor, "window rows column"]) -> Float[Tensor, "window rows column regressor"]:
    """Regressors of the changes to come: smoothed levels from the last value, two changes, the mean, a one."""
    rates, level = filled.new_tensor(LEVEL_RATES), filled[:, 0].unsqueeze(-1)
    levels = [level.expand(-1, -1, len(LEVEL_RATES))]
    for number, now in enumerate(filled[:, 1:].unbind(1), start=2):
        levels.append(levels[-1] + rates.clamp(min=1 / number) * (now.unsqueeze(-1) - levels[-1]))
    still = torch.zeros_like(filled[:, :1])
    change = torch.cat((still, filled.diff(dim=1)), dim=1)
    before = torch.cat((still, change[:, :-1]), dim=1)
    from_last = torch.stack(levels, dim=1) - filled.unsqueeze(-1)
    return torch.cat((from_last, torch.stack((change, before, -filled, torch.ones_like(filled)), dim=-1)), dim=-1)


MEAN = len(LEVEL_RATES) + 2
"""Which regressor is the distance from the mean of training (values are scaled: it is 0)."""


def _expected_changes(
    x: Float[Tensor, "window time_plus_1 column"], history: int, to_mean: Bool[Tensor, "column"]
) -> tuple[Float[Tensor, "column regressor"], Float[Tensor, "ahead column regressor"]]:
    """Weights of the regressors: one step ahead of any row, and each number of steps ahead of the last known one."""
    filled = fill_forward(x)
    design = _design(filled)
    design[..., MEAN] = design[..., MEAN] * to_mean
    one_step = _least_squares(design[:, :-1].flatten(0, 1), (x[:, 1:] - filled[:, :-1]).flatten(0, 1))
    changes = x[:, history + 1 :] - filled[:, history, None]
    return one_step, torch.stack([_least_squares(design[:, history], change) for change in changes.unbind(1)])


def _returns_to_mean(train: Tensor, validation: Tensor, history: int) -> Bool[Tensor, "column"]:
    """Whether the mean of training, as a regressor, makes forecasts of validation windows better."""
    filled = fill_forward(validation)
    design = _design(filled)
    errors = []
    for used in (False, True):
        _, ahead = _expected_changes(train, history, torch.full((train.shape[-1],), used))
        anchors = _ahead_anchors(filled, design, history, ahead)
        errors.append((validation[:, history + 1 :] - anchors).square().nanmean(dim=(0, 1)))
    return errors[1] < errors[0]


def _ahead_anchors(filled: Tensor, design: Tensor, row: int, weights: Tensor) -> Float[Tensor, "window ahead column"]:
    return filled[:, row, None] + _weighted(weights, design[:, row, None])


def _weighted(weights: Float[Tensor, "... column regressor"], design: Tensor) -> Float[Tensor, "... column"]:
    return (design * weights).sum(dim=-1)


def _least_squares(
    regressors: Float[Tensor, "row column regressor"], y: Float[Tensor, "row column"]
) -> Float[Tensor, "column regressor"]:
    """Ridge regressions of each column on its own regressors; rows where y is missing do not count."""
    seen = ~y.isnan()
    design, wanted = (regressors * seen.unsqueeze(-1)).double(), y.nan_to_num(0.0).double()
    squares = torch.einsum("nck,ncl->ckl", design, design)
    products = torch.einsum("nck,nc->ck", design, wanted)
    scale = squares.diagonal(dim1=1, dim2=2).sqrt().clamp(min=TINY)
    squares = squares / scale.unsqueeze(1) / scale.unsqueeze(2) + RIDGE * torch.eye(scale.shape[1]).double()
    return (torch.linalg.solve(squares, products / scale) / scale).to(y.dtype)


def _share(deviations: Float[Tensor, "window ahead column"], step: int) -> Float[Tensor, "column"]:
    """The regression of a step's deviations on those of the step before; 0 at the first."""
    if step == 0:
        return deviations.new_zeros(deviations.shape[-1])
    now, before = deviations[:, step], deviations[:, step - 1]
    both = ~(now.isnan() | before.isnan())
    now, before = (torch.where(both, part, 0.0) for part in (now, before))
    return (now * before).sum(dim=0) / before.square().sum(dim=0).clamp(min=TINY)


def _quantiles(
    errors: Float[Tensor, "row column"], probability: Float[Tensor, "quantile"]
) -> Float[Tensor, "column quantile"]:
    """Quantiles of each column, each above the one before it by at least a little: ties would have no inverse.

    The outermost two are beyond all but a few errors, and as far from the next as the middle is from that: what lies
    further out than training errors goes on no steeper than they did on the whole.
    """
    found = []
    for column in errors.T:
        seen = column[~column.isnan()].sort().values
        found.append(seen[(probability * len(seen)).long().clamp(max=len(seen) - 1)])
    knots = torch.stack(found)
    middle = knots[:, knots.shape[1] // 2]
    knots[:, 0], knots[:, -1] = 2 * knots[:, 1] - middle, 2 * knots[:, -2] - middle
    least = 1e-3 * (knots[:, -1:] - knots[:, :1]).clamp(min=TINY) / knots.shape[1]
    return knots + least * (torch.arange(knots.shape[1]) - knots.shape[1] / 2)


def _segment(knots: Float[Tensor, "column knot"], x: Float[Tensor, "column row"]) -> Tensor:
    """The segment between two knots in which a number lies; the first and last go on for ever."""
    return (torch.searchsorted(knots, x) - 1).clamp(0, knots.shape[1] - 2)


def _interpolate(
    x: Float[Tensor, "*batch column"], knots: Float[Tensor, "column knot"], values: Float[Tensor, "column knot"]
) -> Float[Tensor, "*batch column"]:
    """The piecewise linear function through the knots, one for each column; NaN stays."""
    flat = x.reshape(-1, x.shape[-1]).T.contiguous()
    segment = _segment(knots, flat)
    slopes = values.diff(dim=-1) / knots.diff(dim=-1)
    found = values.gather(1, segment) + slopes.gather(1, segment) * (flat - knots.gather(1, segment))
    return found.T.reshape(x.shape)
