"""What a network of the neural baselines is, its dropout masks, and the error that it is trained on."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.support.randomness import derived_generator

# The purposes for which training draws random numbers: each has a stream of its own.
WEIGHTS, SHUFFLE, STEP, VALIDATION = range(4)


class Network(nn.Module, ABC):
    """Predicts the modelled columns of X_t from X_0, ..., X_{t-1}, in as many ways as it has passes.

    One pass is one set of dropout masks or one draw of the weights, kept over all steps.
    """

    windows_at_once = 8  # windows whose paths are drawn together, which keeps the work within the caches

    @abstractmethod
    def loss(self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator) -> Float[Tensor, ""]:
        """Loss of a batch of windows; dropout is switched off unless the network is in training mode."""

    def validation_loss(self, x: Float[Tensor, "batch time_plus_1 n_inputs"]) -> float:
        """What chooses the best epoch: the loss, with the same noise after every epoch."""
        return float(self.loss(x, derived_generator(VALIDATION)))

    @abstractmethod
    def draw_passes(self, n_passes: int, generator: Generator | None) -> Float[Tensor, "sample *size"]:
        """The randomness of several passes."""

    @abstractmethod
    def all_steps(
        self, x: Float[Tensor, "batch time n_inputs"], passes: Float[Tensor, "sample *size"]
    ) -> Float[Tensor, "batch sample time n_modelled"]:
        """Predictions of what follows each step of x, by every pass."""

    @abstractmethod
    def read(self, history: Float[Tensor, "batch past n_inputs"], passes: Float[Tensor, "sample *size"]) -> Any:
        """The state of all passes after a history that they share."""

    @abstractmethod
    def predict(self, state: Any) -> Float[Tensor, "batch sample n_modelled"]:
        """The prediction of what comes next, by every pass."""

    @abstractmethod
    def advance(self, state: Any, x: Float[Tensor, "batch sample n_inputs"]) -> Any:
        """The state after every pass has read values of its own."""


def observed_mse(
    prediction: Float[Tensor, "*sample batch time target"], x: Float[Tensor, "batch time_plus_1 n_inputs"]
) -> Float[Tensor, ""]:
    """Mean squared error of the predictions of X_1, ..., X_T where those were observed."""
    target = x[:, 1:, : prediction.shape[-1]]
    seen = ~target.isnan()
    error = torch.where(seen, prediction - target.nan_to_num(0.0), 0.0)
    return error.square().sum() / (seen.sum() * prediction[..., 0, 0, 0].numel())


def draw_masks(shape: tuple[int, ...], rate: float, generator: Generator | None) -> Tensor:
    """Zero with probability `rate`, else 1 / (1 - rate), so that the mean is one."""
    if rate == 0.0:
        return torch.ones(shape)
    return (torch.rand(shape, generator=generator) >= rate).float() / (1 - rate)
