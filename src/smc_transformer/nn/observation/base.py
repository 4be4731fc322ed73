"""What an observation model is: a family of distributions of the targets, and how its own parameters are learned.

The read-out gives every particle a vector of raw parameters; the observation model makes them into a distribution of
X_t (`Components`, one for each particle). A new observation model is one new file with those two classes.
"""

import copy
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from smc_transformer.kernels.densities import Form
from smc_transformer.nn.noise import standard_normal
from smc_transformer.predictive import Components, Mixture


class WholeNumbers(NamedTuple):
    """Values that a distribution of whole numbers can have: 0, 1, 2, ... up to the highest."""

    highest: float  # infinite if there is none
    description: str  # what an error says of them

    def denies(self, x: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
        """Which values are none of them; NaN is missing, and allowed."""
        return ((x < 0) | (x > self.highest) | (x != x.round())) & ~x.isnan()


class ObservationModel(nn.Module, ABC):
    """A family of distributions of the targets.

    Attributes:
        n_targets: number of predicted coordinates.
        n_parameters: raw parameters of one distribution: outputs that the read-out must have.
        can_shift: whether `predict_change` makes sense for this distribution; the model refuses it otherwise.
        needs_shift: whether it makes no sense without, because parameters come from the last targets alone.
        support: the values that targets can have; None: all numbers.
        mixture_type: what `mixture` makes.
    """

    can_shift = True
    needs_shift = False
    mixture_type: type[Mixture] = Mixture
    support: WholeNumbers | None = None

    def __init__(self, n_targets: int, n_parameters: int):
        super().__init__()
        self.n_targets = n_targets
        self.n_parameters = n_parameters

    @abstractmethod
    def components(self, parameters: Float[Tensor, "*batch n_parameters"]) -> Components:
        """The distributions that raw parameters stand for."""

    def initial_parameters(self) -> Float[Tensor, "n_parameters"]:
        """Where the raw parameters should start; added to the read-out's bias."""
        return torch.zeros(self.n_parameters)

    def shift(
        self, parameters: Float[Tensor, "*batch n_parameters"], last_targets: Float[Tensor, "*#batch n_targets"]
    ) -> Float[Tensor, "*batch n_parameters"]:
        """The parameters moved by the last targets (`predict_change`); the first ones are locations."""
        location = parameters[..., : self.n_targets] + last_targets
        return torch.cat((location, parameters[..., self.n_targets :]), dim=-1)

    def kernel_form(self) -> Form | None:
        """How the filter's kernel should see the distributions; None: it cannot, and torch evaluates them.

        Only the class that defines it is asked: a subclass has to define it again, as it may have changed anything
        that its parent's answer relied on (see `inference.engine`).
        """
        return None

    def standard_draws(
        self, shape: tuple[int, ...], like: Tensor, generator: Generator | None
    ) -> Float[Tensor, "*batch n_targets"]:
        """Draws of the standard distribution, as `sample` draws them: targets are location + scale * (root draw).

        Asked only of a class whose own `kernel_form` is elliptical: by default those of a Gaussian.
        """
        return standard_normal((*shape, self.n_targets), like, generator)

    def n_features(self, n_inputs: int) -> int:
        """Features that the encoder sees of an observation with `n_inputs` coordinates."""
        return n_inputs

    def features(self, x: Float[Tensor, "*batch n_inputs"]) -> Float[Tensor, "*batch n_features"]:
        """What the encoder sees of an observation."""
        return x

    def check(self, x: Float[Tensor, "batch time n_inputs"], name: str = "x") -> None:
        """Raise a ValueError when targets have values outside the support; NaN is missing, and allowed."""
        if self.support is None:
            return
        wrong = self.support.denies(x[..., : self.n_targets]).nonzero().tolist()
        if wrong:
            value, description = x[tuple(wrong[0])].item(), self.support.description
            raise ValueError(f"{name} holds {value:g} at {wrong[0]} (batch, time, feature), but {description}")

    def mixture(
        self,
        log_weights: Float[Tensor, "batch particle time"],
        parameters: Float[Tensor, "batch particle time n_parameters"],
    ) -> Mixture:
        """The predictive distribution of weighted particles."""
        # From a frozen copy: what is learned later must not change forecasts made before.
        return self.mixture_type(log_weights, parameters, copy.deepcopy(self).requires_grad_(False).components)

    def statistics(
        self,
        targets: Float[Tensor, "batch #trajectory time n_targets"],
        parameters: Float[Tensor, "batch trajectory time n_parameters"],
        weights: Float[Tensor, "batch trajectory"],
    ) -> Any:
        """What the EM step needs of a batch; None for an observation model that is learned by gradient alone."""
        return None

    def forecast_statistics(self, parameters: Float[Tensor, "batch path horizon n_parameters"]) -> Any:
        """What the EM step needs of forecast paths, where nothing was observed; None if there is no such thing."""
        return None

    def merge(self, statistics: list[Any], shares: list[float]) -> Any:
        """The statistics of a batch from those of its parts; `shares` of the sequences sum to one.

        Right as it is for averages over the sequences; an observation model with other statistics overrides it.
        """
        if all(part is None for part in statistics):
            return None
        if not all(isinstance(part, Tensor) for part in statistics):
            raise TypeError(f"{type(self).__name__} needs a method merge for statistics of its own kind")
        return weighted_mean(statistics, shares)

    def widen_(self, factor: float) -> None:
        """Make the noise wider by a factor, after training (see `learning.calibration`)."""
        raise NotImplementedError(f"{type(self).__name__} has no width to change")

    def em_step_(self, statistics: Any, step_size: float) -> None:
        """Move what EM learns towards the statistics of a batch."""


def weighted_mean(parts: list[Tensor], shares: list[float]) -> Tensor:
    """The mean of tensors of one shape, each with its share."""
    return torch.stack([share * part for part, share in zip(parts, shares, strict=True)]).sum(dim=0)


def weighted_second_moment(
    residuals: Float[Tensor, "batch trajectory time feature"], weights: Float[Tensor, "batch trajectory"]
) -> Float[Tensor, "feature feature"]:
    """Mean of r r^T over trajectories (by weight), steps and batch."""
    batch, _, n_steps, n_features = residuals.shape
    weighted = residuals * weights[:, :, None, None]
    return weighted.reshape(-1, n_features).T @ residuals.reshape(-1, n_features) / (batch * n_steps)
