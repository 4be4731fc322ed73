"""The interface of every forecasting method: learn from windows, predict the next step, and draw paths."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.predictive import Predictive
from smct_paper.datasets import Windows


class Method(ABC):
    """A forecasting method: trained on windows; gives one-step distributions and paths.

    The first `n_modelled` columns of a window are forecast, the others are only inputs. NaN is missing.
    """

    is_point: bool = False  # whether it forecasts a single path and claims no uncertainty: only its errors are scored

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON can hold them; none, unless the method says otherwise."""
        return {}

    @abstractmethod
    def fit(self, data: Windows, *, seed: int, progress: bool = False) -> dict[str, Any]:
        """Learn from the training windows, choose by the validation windows; never look at the test windows.

        Returns:
            Facts of the training that JSON can hold.
        """

    @abstractmethod
    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | int | None = None
    ) -> Predictive:
        """The distributions of X_1, ..., X_T (modelled columns), each given the past X_0, ..., X_{t-1}."""

    @abstractmethod
    def paths(
        self,
        history: Float[Tensor, "batch past n_inputs"],
        horizon: int,
        n_samples: int,
        future_inputs: Float[Tensor, "batch horizon known"] | None = None,
        generator: Generator | int | None = None,
    ) -> Float[Tensor, "batch sample horizon n_modelled"]:
        """Joint paths of the modelled columns after the history X_0, ..., X_H.

        `future_inputs` are the columns that are not modelled, at the steps of the horizon (the last is not used); they
        are needed if there are any. Without a generator or seed, torch's default generator is used.
        """


def fill_forward(x: Float[Tensor, "batch time feature"]) -> Float[Tensor, "batch time feature"]:
    """Missing values replaced by the last observed one of their column (by 0, the mean, where there is none yet)."""
    seen = ~x.isnan()
    if seen.all():
        return x
    steps = torch.arange(x.shape[1]).view(1, -1, 1)
    last_seen = torch.where(seen, steps, 0).cummax(dim=1).values
    return x.gather(1, last_seen).nan_to_num(0.0)


def known_inputs(
    future_inputs: Float[Tensor, "batch horizon known"] | None, history: Tensor, horizon: int, n_modelled: int
) -> Float[Tensor, "batch horizon known"]:
    """The columns that are not modelled, at the steps of the horizon; an error if they are needed and not given."""
    expected = (len(history), horizon, history.shape[-1] - n_modelled)
    if future_inputs is None and (horizon == 1 or expected[-1] == 0):
        return history.new_zeros(expected)
    if future_inputs is None or tuple(future_inputs.shape) != expected:
        got = None if future_inputs is None else tuple(future_inputs.shape)
        raise ValueError(f"future_inputs must have shape (batch, horizon, known) = {expected}, got {got}")
    return fill_forward(future_inputs)
