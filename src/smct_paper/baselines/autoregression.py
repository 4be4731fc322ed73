"""A linear vector autoregression with bootstrapped residuals.

    X_t = X_{t-1} + b + A_1 X_{t-1} + ... + A_p X_{t-p} + residual

by ridge regression, so that shrinking leads to the naive forecast and not to the mean. All columns are regressors, the
modelled ones are predicted. Order and ridge are those with the lowest one-step error on validation windows. Early
steps of a window have a shorter past than the order: they use the autoregression of the longest order that fits.
Residuals are whole rows from the training set, so that they have the dependence and the tails of the data.
Rows with a missing value are left out of the regression; in a history, it is replaced by the last observed value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.empirical import Residuals, ShiftedResiduals
from smc_transformer.support.chunks import chunk_size
from smc_transformer.support.randomness import as_generator
from smct_paper.baselines.base import Method, fill_forward, known_inputs
from smct_paper.datasets import Windows

ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
RIDGES = (1e-6, 1e-4, 1e-2, 1e-1, 1.0)
NUMBERS_AT_ONCE = 2**24
"""Size of the regressors that are built at a time, to bound the memory."""


class Regression(NamedTuple):
    """An autoregression of one order: the change of the modelled columns is intercept + sum of lags @ slopes."""

    intercept: Float[Tensor, "n_modelled"]
    slopes: Float[Tensor, "lag n_inputs n_modelled"]
    """Lag 1 first."""

    @property
    def order(self) -> int:
        """How many past values it reads."""
        return len(self.slopes)


@dataclass
class Autoregression(Method):
    """A ridge-regularised linear vector autoregression with bootstrapped residuals."""

    # orders to choose from; the whole history (H + 1 values) is one more, and the longest
    orders: Sequence[int] = ORDERS
    ridges: Sequence[float] = RIDGES  # penalties to choose from, as shares of the regressors' mean square of 1

    def __post_init__(self) -> None:
        self._regressions: list[Regression] = []
        self._residuals: list[Residuals] = []

    def settings(self) -> dict[str, Any]:
        return {"orders": list(self.orders), "ridges": list(self.ridges)}

    def fit(self, data: Windows, *, seed: int, progress: bool = False) -> dict[str, Any]:
        candidates = []  # the best of each order: validation error, ridge, regression
        whole = data.history + 1
        for order in sorted({whole, *(order for order in self.orders if order < whole)}):
            fitted = ridge_regressions(data.train, data.n_modelled, order, self.ridges)
            errors = [validation_mse(regression, data.validation, data.history) for regression in fitted]
            candidates.append(min(zip(errors, self.ridges, fitted, strict=True), key=itemgetter(0)))
        mse, ridge, chosen = min(candidates, key=itemgetter(0))
        self._regressions = [regression for _, _, regression in candidates if regression.order <= chosen.order]
        self._residuals = [training_residuals(regression, data.train) for regression in self._regressions]
        return {"order": chosen.order, "ridge": ridge, "validation_mse": mse}

    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | int | None = None
    ) -> ShiftedResiduals:
        self._check_fitted()
        past = fill_forward(x)[:, :-1]
        longest = [self._longest(t + 1) for t in range(past.shape[1])]
        location = torch.stack([self._predict(past[:, : t + 1], number) for t, number in enumerate(longest)], dim=1)
        return ShiftedResiduals(location, self._residuals, longest)

    def paths(
        self,
        history: Float[Tensor, "batch past n_inputs"],
        horizon: int,
        n_samples: int,
        future_inputs: Float[Tensor, "batch horizon known"] | None = None,
        generator: Generator | int | None = None,
    ) -> Float[Tensor, "batch sample horizon n_modelled"]:
        self._check_fitted()
        generator = as_generator(generator)
        n_modelled = len(self._regressions[0].intercept)
        known = known_inputs(future_inputs, history, horizon, n_modelled)
        past = fill_forward(history)[:, None]
        size = (len(history), n_samples)
        own = history.new_empty(*size, horizon, history.shape[-1])
        own[..., n_modelled:] = known.unsqueeze(1)
        for ahead in range(horizon):
            number = self._longest(past.shape[2] + ahead)
            # The shared past is multiplied once for all samples.
            regression, rows = self._regressions[number], self._residuals[number].rows
            n_own = min(ahead, regression.order)
            shared = past[:, :, past.shape[2] - (regression.order - n_own) :]
            mean = regression.intercept + _weighted(shared, regression.slopes[n_own:])
            mean = mean + _weighted(own[:, :, ahead - n_own : ahead], regression.slopes[:n_own])
            last = past[:, :, -1, :n_modelled] if ahead == 0 else own[:, :, ahead - 1, :n_modelled]
            drawn = rows[torch.randint(len(rows), size, generator=generator)]
            own[:, :, ahead, :n_modelled] = last + mean + drawn
        return own[..., :n_modelled]

    def _check_fitted(self) -> None:
        if not self._regressions:
            raise RuntimeError("Autoregression has to be fitted first")

    def _longest(self, n_past: int) -> int:
        """Which regression to use after so many values."""
        return max(number for number, regression in enumerate(self._regressions) if regression.order <= n_past)

    def _predict(self, past: Float[Tensor, "batch past n_inputs"], number: int) -> Float[Tensor, "batch n_modelled"]:
        regression = self._regressions[number]
        change = regression.intercept + _weighted(past[:, past.shape[1] - regression.order :], regression.slopes)
        return past[:, -1, : change.shape[-1]] + change


def _weighted(
    values: Float[Tensor, "*batch lag n_inputs"], slopes: Float[Tensor, "lag n_inputs n_modelled"]
) -> Float[Tensor, "*batch n_modelled"]:
    """Sum of values times slopes; values are in the order of time, slopes have the latest first."""
    return values.flatten(-2) @ slopes.flip(0).flatten(0, 1)


def design(
    x: Float[Tensor, "window time_plus_1 n_inputs"], n_modelled: int, order: int
) -> Iterator[tuple[Float[Tensor, "row regressor"], Float[Tensor, "row n_modelled"]]]:
    """Complete regressors (a one, then the lags in the order of time) and changes, a chunk of windows at a time."""
    n_steps, n_inputs = x.shape[1] - order, x.shape[2]
    at_once = chunk_size(NUMBERS_AT_ONCE, n_steps * (order * n_inputs + 1))
    for part in x.split(at_once):
        spans = part.unfold(1, order + 1, 1).transpose(2, 3).flatten(0, 1)
        lags, change = spans[:, :-1].flatten(1), spans[:, -1, :n_modelled] - spans[:, -2, :n_modelled]
        complete = ~(lags.isnan().any(dim=-1) | change.isnan().any(dim=-1))
        lags, change = lags[complete].double(), change[complete].double()
        yield torch.cat((lags.new_ones(len(lags), 1), lags), dim=-1), change


def ridge_regressions(
    x: Float[Tensor, "window time_plus_1 n_inputs"], n_modelled: int, order: int, ridges: Sequence[float]
) -> list[Regression]:
    """Least squares with each of several penalties on the slopes, from one pass over the data."""
    n_inputs = x.shape[-1]
    n_regressors = order * n_inputs + 1
    squares, products, n_rows = torch.zeros(()).double(), torch.zeros(()).double(), 0
    for regressors, change in design(x, n_modelled, order):
        squares = squares + regressors.T @ regressors
        products = products + regressors.T @ change
        n_rows += len(regressors)
    if n_rows == 0:
        raise ValueError(f"no training window has {order + 1} complete rows in succession")
    penalty = torch.ones(n_regressors, dtype=torch.float64)
    penalty[0] = 0.0  # the intercept is free
    fitted = []
    for ridge in ridges:
        found = torch.linalg.solve(squares / n_rows + ridge * penalty.diag(), products / n_rows).to(x.dtype)
        fitted.append(Regression(found[0], found[1:].view(order, n_inputs, n_modelled).flip(0)))
    return fitted


def validation_mse(regression: Regression, x: Float[Tensor, "window time_plus_1 n_inputs"], history: int) -> float:
    """One-step error over the steps of the horizon, where every order that was tried has its whole past."""
    filled = fill_forward(x)
    past = filled[:, history + 1 - regression.order : -1].unfold(1, regression.order, 1).transpose(2, 3)
    n_modelled = len(regression.intercept)
    last = filled[:, history:-1, :n_modelled]
    prediction = last + regression.intercept + _weighted(past, regression.slopes)
    return float((prediction - x[:, history + 1 :, :n_modelled]).square().nanmean())


def training_residuals(regression: Regression, x: Float[Tensor, "window time_plus_1 n_inputs"]) -> Residuals:
    """What the regression left unexplained in training, whole rows."""
    coefficients = torch.cat((regression.intercept.unsqueeze(0), regression.slopes.flip(0).flatten(0, 1))).double()
    rows = design(x, len(regression.intercept), regression.order)
    return Residuals(torch.cat([(change - regressors @ coefficients).to(x.dtype) for regressors, change in rows]))
