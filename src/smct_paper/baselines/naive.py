"""The naive forecast: the last value, plus a change that was seen in training.

The distribution of X_{t+1}, ..., X_{t+h} is the last observed value plus whole paths of changes X_{s+1..s+h} - X_s of
training windows. So paths are joint over steps and columns, and nothing is assumed about the shape of the distribution.
The changes come from all positions s of the windows, or only from the position of the forecast, if that has a clearly
better CRPS on validation windows: where windows share a calendar (covid), the position matters.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.empirical import Residuals, ShiftedResiduals
from smc_transformer.support.randomness import as_generator
from smct_paper.baselines.base import Method, fill_forward
from smct_paper.datasets import Windows

CLEARLY = 0.99
"""Changes from the forecast's own position are used if their CRPS is below this share of that of all changes."""


class NaiveForecast(Method):
    """The last value plus changes that were seen in training."""

    def __init__(self) -> None:
        self._train: Tensor | None = None
        self._residuals: Sequence[Residuals] = ()
        self._by_position = {"unistep": False, "multistep": False}

    def fit(self, data: Windows, *, seed: int, progress: bool = False) -> dict[str, Any]:
        train, validation = data.train[:, :, : data.n_modelled], data.validation[:, :, : data.n_modelled]
        changes = train.diff(dim=1)
        self._train, self._residuals = train, [_residuals(changes.flatten(0, 1))]
        if not train.isnan().any():  # otherwise single positions may have no complete rows
            each = [_residuals(change) for change in changes.unbind(dim=1)]
            crps = [_one_step_crps(distribution, validation) for distribution in (self._residuals, each)]
            self._by_position["unistep"] = crps[1] < CLEARLY * crps[0]
            if self._by_position["unistep"]:
                self._residuals = each
            self._by_position["multistep"] = self._position_helps_paths(validation, data.history)
        return {"by_position": dict(self._by_position)}

    def _position_helps_paths(self, validation: Tensor, history: int) -> bool:
        """Whether changes from the forecast's own position have the better CRPS over the horizon."""
        horizon = validation.shape[1] - 1 - history
        changes = _path_changes(self._training, horizon)
        observed = validation[:, history + 1 :] - fill_forward(validation[:, : history + 1])[:, -1:]
        crps = []
        for candidates in (changes.flatten(0, 1), changes[:, history]):
            steps = enumerate(candidates.unbind(dim=1))
            scores = [_residuals(rows).crps(observed[:, ahead]).nanmean() for ahead, rows in steps]
            crps.append(float(torch.stack(scores).mean()))
        return crps[1] < CLEARLY * crps[0]

    @property
    def _training(self) -> Float[Tensor, "window time_plus_1 n_modelled"]:
        if self._train is None:
            raise RuntimeError("NaiveForecast has to be fitted first")
        return self._train

    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | int | None = None
    ) -> ShiftedResiduals:
        last = fill_forward(x)[:, :-1, : self._training.shape[-1]]
        return _around(last, self._residuals)

    def paths(
        self,
        history: Float[Tensor, "batch past n_inputs"],
        horizon: int,
        n_samples: int,
        future_inputs: Float[Tensor, "batch horizon known"] | None = None,
        generator: Generator | int | None = None,
    ) -> Float[Tensor, "batch sample horizon n_modelled"]:
        changes = _path_changes(self._training, horizon)
        position = history.shape[1] - 1
        if self._by_position["multistep"] and position < changes.shape[1]:
            changes = changes[:, position : position + 1]
        complete = (~changes.isnan()).all(dim=-1).all(dim=-1).nonzero()
        if len(complete) == 0:
            raise ValueError(f"no training window has {horizon + 1} complete rows in succession")
        chosen = torch.randint(len(complete), (len(history), n_samples), generator=as_generator(generator))
        window, start = complete[chosen].unbind(dim=-1)
        last = fill_forward(history)[:, None, -1:, : changes.shape[-1]]
        return last + changes[window, start]


def _path_changes(
    train: Float[Tensor, "window time_plus_1 n_modelled"], horizon: int
) -> Float[Tensor, "window start horizon n_modelled"]:
    """X_{s+1}, ..., X_{s+horizon} minus X_s, for every position s."""
    if not 1 <= horizon < train.shape[1]:
        raise ValueError(
            f"the horizon must be between 1 and {train.shape[1] - 1}, the steps of a window; got {horizon}"
        )
    spans = train.unfold(1, horizon + 1, 1).transpose(2, 3)
    return spans[:, :, 1:] - spans[:, :, :1]


def _residuals(rows: Float[Tensor, "row n_modelled"]) -> Residuals:
    return Residuals(rows[~rows.isnan().any(dim=-1)])


def _around(location: Float[Tensor, "batch time n_modelled"], residuals: Sequence[Residuals]) -> ShiftedResiduals:
    """Every step has its own residuals, or all steps the only ones."""
    n_steps = location.shape[1]
    return ShiftedResiduals(location, residuals, [0] * n_steps if len(residuals) == 1 else range(n_steps))


def _one_step_crps(residuals: Sequence[Residuals], x: Float[Tensor, "batch time_plus_1 n_modelled"]) -> float:
    return float(_around(fill_forward(x)[:, :-1], residuals).crps(x[:, 1:]).nanmean())
