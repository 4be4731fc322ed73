"""A Bayesian LSTM: every weight has a Gaussian posterior, learned by Bayes by backprop (Fortunato et al., 2017).

The loss is the negative ELBO per observed value, with the squared error in the place of the log-likelihood, as in
the paper (a Gaussian of variance 1/2): mean over M weight draws of mse + KL / (number of observed training values).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.nn.initialisation import initialise_weights
from smct_paper.baselines.base import fill_forward
from smct_paper.baselines.lstm import lstm_cell
from smct_paper.baselines.network import Network, observed_mse
from smct_paper.baselines.neural import NeuralMethod
from smct_paper.baselines.variational import GaussianPosterior, ScaleMixture
from smct_paper.datasets import Windows


class Weights(NamedTuple):
    """The weights of the network, for each draw."""

    inputs: Float[Tensor, "sample gate n_inputs"]
    recurrent: Float[Tensor, "sample gate hidden"]
    bias: Float[Tensor, "sample gate"]
    output: Float[Tensor, "sample n_modelled hidden"]
    output_bias: Float[Tensor, "sample n_modelled"]


class BayesianState(NamedTuple):
    """Hidden and cell vectors, and the weights; the first axis is that of the draws, for batched matrix products."""

    hidden: Float[Tensor, "sample batch hidden"]
    cell: Float[Tensor, "sample batch hidden"]
    weights: Weights


class BayesianLSTMNetwork(Network):
    """One LSTM layer and a linear output layer, whose weights are drawn for each pass.

    Whole sequences go through torch's LSTM once for each draw: its fused steps are three times faster than a loop over
    steps with batched products. Single steps of many draws are batched products.
    """

    windows_at_once = 64

    def __init__(self, n_inputs: int, n_modelled: int, n_observed: int, settings: "BayesianLSTM", generator: Generator):
        super().__init__()
        lstm, output = nn.LSTM(n_inputs, settings.hidden_size), nn.Linear(settings.hidden_size, n_modelled)
        for part in (lstm, output):
            initialise_weights(part, generator)
        # One bias is enough: torch's LSTM has two only because CUDA's has.
        first = (*lstm.all_weights[0][:3], output.weight, output.bias)
        self.shapes = [tuple(part.shape) for part in first]
        means = torch.cat([part.detach().flatten() for part in first])
        self.posterior = GaussianPosterior(means, settings.initial_deviation)
        self.prior = ScaleMixture(settings.prior_sigma_1, settings.prior_sigma_2, settings.prior_pi)
        self.elbo_samples = settings.elbo_samples
        self.n_observed = n_observed
        self.hidden_size = settings.hidden_size

    def weights(self, drawn: Float[Tensor, "sample weight"]) -> Weights:
        """Draws of the long vector, cut into the network's matrices."""
        sizes = [torch.Size(shape).numel() for shape in self.shapes]
        parts = zip(drawn.split(sizes, dim=-1), self.shapes, strict=True)
        return Weights(*(part.unflatten(-1, shape) for part, shape in parts))

    def _run(self, x: Float[Tensor, "batch time n_inputs"], weights: Weights, number: int) -> tuple[Tensor, ...]:
        """Hidden vectors of all steps, and the last hidden and cell vectors, by one draw."""
        start = x.new_zeros(1, len(x), self.hidden_size)
        bias = weights.bias[number]
        parameters = [weights.inputs[number], weights.recurrent[number], bias, torch.zeros_like(bias)]
        # nn.LSTM without the module around it: the weights are draws, not parameters.
        return torch.lstm(x, (start, start), parameters, True, 1, 0.0, self.training, False, True)

    def all_steps(
        self, x: Float[Tensor, "batch time n_inputs"], passes: Float[Tensor, "sample weight"]
    ) -> Float[Tensor, "batch sample time n_modelled"]:
        weights = self.weights(passes)
        # The hidden vectors of a thousand draws would need gigabytes: each draw's are read out at once.
        predictions = [
            torch.nn.functional.linear(self._run(x, weights, number)[0], matrix, bias)
            for number, (matrix, bias) in enumerate(zip(weights.output, weights.output_bias, strict=True))
        ]
        return torch.stack(predictions, dim=1)

    def loss(self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator) -> Float[Tensor, ""]:
        drawn = self.posterior.sample(self.elbo_samples, generator)
        predictions = self.all_steps(fill_forward(x)[:, :-1], drawn)
        fit = observed_mse(predictions.transpose(0, 1), x)
        return fit + self.posterior.divergence(self.prior, drawn) / self.n_observed

    def draw_passes(self, n_passes: int, generator: Generator | None) -> Float[Tensor, "sample weight"]:
        return self.posterior.sample(n_passes, generator)

    def read(
        self, history: Float[Tensor, "batch past n_inputs"], passes: Float[Tensor, "sample weight"]
    ) -> BayesianState:
        weights = self.weights(passes)
        ends = [self._run(history, weights, number)[1:] for number in range(len(passes))]
        hidden, cell = (torch.cat(part) for part in zip(*ends, strict=True))
        return BayesianState(hidden, cell, weights)

    def predict(self, state: BayesianState) -> Float[Tensor, "batch sample n_modelled"]:
        weights = state.weights
        return torch.baddbmm(weights.output_bias[:, None], state.hidden, weights.output.mT).transpose(0, 1)

    def advance(self, state: BayesianState, x: Float[Tensor, "batch sample n_inputs"]) -> BayesianState:
        weights = state.weights
        gates = torch.baddbmm(weights.bias[:, None], x.transpose(0, 1), weights.inputs.mT)
        gates.baddbmm_(state.hidden, weights.recurrent.mT)
        return BayesianState(*lstm_cell(gates, state.cell), weights)


@dataclass
class BayesianLSTM(NeuralMethod):
    """An LSTM with a posterior over its weights; the spread over weight draws is its distribution."""

    epochs: int = 150
    elbo_samples: int = 3  # weight draws in the loss of a batch (M in the paper)
    prior_sigma_1: float = 0.1  # this and the next two: the prior, see `ScaleMixture`
    prior_sigma_2: float = 0.002
    prior_pi: float = 1.0
    initial_deviation: float = 0.0025  # of the posterior

    def build(self, data: Windows, generator: Generator) -> BayesianLSTMNetwork:
        n_observed = int((~data.train[:, 1:, : data.n_modelled].isnan()).sum())
        return BayesianLSTMNetwork(data.n_inputs, data.n_modelled, n_observed, self, generator)
