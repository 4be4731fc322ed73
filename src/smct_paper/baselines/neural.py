"""Neural baselines: networks that predict the mean of the next values, with or without randomness inside.

As in the paper, their predictive distribution is the spread of stochastic passes (dropout masks or weight draws),
without observation noise. This is why they underestimate the uncertainty; it is kept here to reproduce the paper. One
pass is one set of masks or weights, kept over all steps: a path feeds its own predictions back through one and the
same network.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.empirical import Point, Samples
from smc_transformer.learning.schedule import Schedule
from smc_transformer.predictive import Predictive
from smc_transformer.support.randomness import as_generator, derived_generator
from smct_paper.baselines.base import Method, fill_forward, known_inputs
from smct_paper.baselines.training import WEIGHTS, train

if TYPE_CHECKING:
    from smct_paper.datasets import Windows

DEFAULT_BATCH = 32
"""Windows in a batch for data that are not in the paper."""


class Network(nn.Module, ABC):
    """Predicts the modelled columns of X_t from X_0, ..., X_{t-1}, in as many ways as it has passes.

    Attributes:
        windows_at_once: windows whose paths are drawn together, which keeps the work within the caches.
    """

    windows_at_once = 8

    @abstractmethod
    def loss(self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator) -> Float[Tensor, ""]:
        """Training loss of a batch of windows."""

    @abstractmethod
    def validation_loss(self, x: Float[Tensor, "batch time_plus_1 n_inputs"]) -> float:
        """What chooses the best epoch."""

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
        """The state after a history that all passes share."""

    @abstractmethod
    def predict(self, state: Any, passes: Float[Tensor, "sample *size"]) -> Float[Tensor, "batch sample n_modelled"]:
        """The prediction of what comes next, by every pass."""

    @abstractmethod
    def advance(
        self, state: Any, x: Float[Tensor, "batch sample n_inputs"], passes: Float[Tensor, "sample *size"]
    ) -> Any:
        """The state after every pass has read values of its own."""


@dataclass
class NeuralMethod(Method):
    """A network, its training and its forecasts.

    Missing inputs are read as the last observed value; missing targets are left out of the loss.

    Attributes:
        epochs: passes over the training windows.
        batch_size: windows in a batch; None: the paper's for the data set.
        learning_rate: of Adam, times the schedule.
        patience: stop after this many epochs without a lower validation loss; None: never.
        hidden_size: features of the network.
        n_passes: stochastic passes that make a one-step distribution.
    """

    epochs: int = 50
    batch_size: int | None = None
    learning_rate: float = 1e-3
    patience: int | None = None
    hidden_size: int = 32
    n_passes: int = 1000
    _network: Network | None = field(default=None, init=False, repr=False)
    _n_modelled: int = field(default=0, init=False, repr=False)

    @abstractmethod
    def build(self, data: "Windows", generator: Generator) -> Network:
        """A network with fresh weights."""

    def schedule(self) -> Schedule | None:
        """Factor on the learning rate; None: constant."""
        return None

    def settings(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self) if part.init}

    @property
    def network(self) -> Network:
        """The trained network."""
        if self._network is None:
            raise RuntimeError(f"{type(self).__name__} has to be fitted first")
        return self._network

    def fit(self, data: "Windows", *, seed: int, progress: bool = False) -> dict[str, Any]:
        with torch.random.fork_rng(devices=[]):  # initial weights leave the global state alone
            network = self.build(data, derived_generator(seed, WEIGHTS))
        validation = data.validation
        self._n_modelled = data.n_modelled
        facts = train(
            network,
            data.train,
            network.loss,
            lambda: network.validation_loss(validation),
            epochs=self.epochs,
            batch_size=self._batch_size(data.name),
            learning_rate=self.learning_rate,
            schedule=self.schedule(),
            patience=self.patience,
            seed=seed,
            title=type(self).__name__,
            progress=progress,
        )
        self._network = network
        return facts

    def _batch_size(self, name: str) -> int:
        from smct_paper.datasets import DATASETS

        if self.batch_size is not None:
            return self.batch_size
        return DATASETS[name].batch_size if name in DATASETS else DEFAULT_BATCH

    @torch.no_grad()
    def one_step(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator | int | None = None
    ) -> Predictive:
        passes = self.network.draw_passes(1 if self.is_point else self.n_passes, as_generator(generator))
        predictions = self.network.all_steps(fill_forward(x)[:, :-1], passes)
        return Point(predictions[:, 0]) if self.is_point else Samples(predictions)

    @torch.no_grad()
    def paths(
        self,
        history: Float[Tensor, "batch past n_inputs"],
        horizon: int,
        n_samples: int,
        future_inputs: Float[Tensor, "batch horizon known"] | None = None,
        generator: Generator | int | None = None,
    ) -> Float[Tensor, "batch sample horizon n_modelled"]:
        known = known_inputs(future_inputs, history, horizon, self._n_modelled)
        passes = self.network.draw_passes(1 if self.is_point else n_samples, as_generator(generator))
        at_once = self.network.windows_at_once
        parts = zip(fill_forward(history).split(at_once), known.split(at_once), strict=True)
        drawn = torch.cat([self._continue(past, inputs, passes) for past, inputs in parts])
        return drawn.expand(-1, n_samples, -1, -1)

    def _continue(
        self,
        history: Float[Tensor, "batch past n_inputs"],
        known: Float[Tensor, "batch horizon known"],
        passes: Float[Tensor, "sample *size"],
    ) -> Float[Tensor, "batch sample horizon n_modelled"]:
        """Let every pass feed its own predictions back."""
        horizon = known.shape[1]
        drawn = history.new_empty(len(history), len(passes), horizon, self._n_modelled)
        state = self.network.read(history, passes)
        for ahead in range(horizon):
            drawn[:, :, ahead] = self.network.predict(state, passes)
            if ahead + 1 < horizon:
                inputs = known[:, None, ahead].expand(-1, len(passes), -1)
                state = self.network.advance(state, torch.cat((drawn[:, :, ahead], inputs), dim=-1), passes)
        return drawn
