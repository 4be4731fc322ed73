"""Neural baselines: networks that predict the mean of the next values, with or without randomness inside.

As in the paper, their predictive distribution is the spread of stochastic passes (dropout masks or weight draws),
without observation noise. This is why they underestimate the uncertainty; it is kept here to reproduce the paper. One
pass is one set of masks or weights, kept over all steps: a path feeds its own predictions back through one and the
same network.
"""

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.empirical import Point, Samples
from smc_transformer.learning.schedule import Schedule, constant
from smc_transformer.predictive import Predictive
from smc_transformer.support.progress import progress_report
from smc_transformer.support.randomness import as_generator, derived_generator
from smct_paper.baselines.base import Method, fill_forward, known_inputs
from smct_paper.baselines.network import SHUFFLE, STEP, WEIGHTS, Network
from smct_paper.datasets import DATASETS, Windows

DEFAULT_BATCH = 32
"""Windows in a batch for data that are not in the paper."""


@dataclass
class NeuralMethod(Method):
    """A network, its training and its forecasts.

    Missing inputs are read as the last observed value; missing targets are left out of the loss.
    """

    epochs: int = 50  # passes over the training windows
    # windows in a batch (the last one of an epoch may be smaller); None: the paper's for the data set
    batch_size: int | None = None
    learning_rate: float = 1e-3  # of Adam, times the schedule
    patience: int | None = None  # stop after this many epochs without a lower validation loss; None: never
    hidden_size: int = 32  # features of the network
    n_passes: int = 1000  # stochastic passes that make a one-step distribution
    _network: Network | None = field(default=None, init=False, repr=False)
    _n_modelled: int = field(default=0, init=False, repr=False)

    @abstractmethod
    def build(self, data: Windows, generator: Generator) -> Network:
        """A network with fresh weights."""

    def schedule(self) -> Schedule:
        """Factor on the learning rate at step p = 1, 2, ..."""
        return constant()

    def settings(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self) if part.init}

    @property
    def network(self) -> Network:
        """The trained network."""
        if self._network is None:
            raise RuntimeError(f"{type(self).__name__} has to be fitted first")
        return self._network

    def fit(self, data: Windows, *, seed: int, progress: bool = False) -> dict[str, Any]:
        """Adam on shuffled batches; the network of the epoch with the lowest validation loss is kept.

        Returns:
            Epochs run, the best of them, its validation loss and all of them.
        """
        with torch.random.fork_rng(devices=[]):  # initial weights leave the global state alone
            network = self.build(data, derived_generator(seed, WEIGHTS))
        optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        schedule, batch_size = self.schedule(), self.batch_size_for(data.name)
        step, best_epoch, best = 0, 0, math.inf
        best_weights: dict[str, Tensor] = {}
        losses: list[float] = []
        n_steps = self.epochs * -(-len(data.train) // batch_size)
        with progress_report(type(self).__name__, n_steps, enabled=progress) as report:
            for epoch in range(1, self.epochs + 1):
                network.train()
                order = torch.randperm(len(data.train), generator=derived_generator(seed, SHUFFLE, epoch))
                for rows in order.split(batch_size):
                    step += 1
                    optimiser.param_groups[0]["lr"] = self.learning_rate * schedule(step)
                    optimiser.zero_grad(set_to_none=True)
                    network.loss(data.train[rows], derived_generator(seed, STEP, step)).backward()
                    optimiser.step()
                    report.advance(1, f"validation {losses[-1]:.4f}" if losses else "")
                network.eval()
                with torch.no_grad():
                    losses.append(network.validation_loss(data.validation))
                if losses[-1] < best:
                    best_epoch, best, best_weights = epoch, losses[-1], copy.deepcopy(network.state_dict())
                if self.patience is not None and epoch - best_epoch >= self.patience:
                    break
        if not best_weights:
            raise ArithmeticError(f"no epoch had a finite validation loss: {losses}")
        network.load_state_dict(best_weights)
        self._network, self._n_modelled = network, data.n_modelled
        return {"epochs": len(losses), "best_epoch": best_epoch, "validation_loss": best, "validation_losses": losses}

    def batch_size_for(self, name: str) -> int:
        """Windows in a batch of the data set of that name."""
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
            drawn[:, :, ahead] = self.network.predict(state)
            if ahead + 1 < horizon:
                inputs = known[:, None, ahead].expand(-1, len(passes), -1)
                state = self.network.advance(state, torch.cat((drawn[:, :, ahead], inputs), dim=-1))
        return drawn
