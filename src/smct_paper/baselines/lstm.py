"""An LSTM, with or without Monte Carlo dropout before its output layer (the paper's appendix B)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.nn.initialisation import initialise_weights
from smct_paper.baselines.base import fill_forward
from smct_paper.baselines.network import Network, draw_masks, observed_mse
from smct_paper.baselines.neural import NeuralMethod
from smct_paper.datasets import Windows


class LSTMState(NamedTuple):
    """Hidden and cell vectors (the sample axis has length 1 as long as all passes are in the same state), and masks."""

    hidden: Float[Tensor, "batch #sample hidden"]
    cell: Float[Tensor, "batch #sample hidden"]
    passes: Float[Tensor, "sample hidden"]


class LSTMNetwork(Network):
    """One LSTM layer, dropout, and a linear output layer.

    Dropout touches the output layer alone, so the recurrent part is computed once for all passes.
    """

    def __init__(self, n_inputs: int, n_modelled: int, hidden_size: int, dropout: float):
        super().__init__()
        self.lstm = nn.LSTM(n_inputs, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size, n_modelled)
        self.dropout = dropout

    def loss(self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator) -> Float[Tensor, ""]:
        hidden, _ = self.lstm(fill_forward(x)[:, :-1])
        masks = draw_masks(tuple(hidden.shape), self.dropout if self.training else 0.0, generator)
        return observed_mse(self.output(hidden * masks), x)

    def draw_passes(self, n_passes: int, generator: Generator | None) -> Float[Tensor, "sample hidden"]:
        return draw_masks((n_passes, self.lstm.hidden_size), self.dropout, generator)

    def all_steps(
        self, x: Float[Tensor, "batch time n_inputs"], passes: Float[Tensor, "sample hidden"]
    ) -> Float[Tensor, "batch sample time n_modelled"]:
        hidden, _ = self.lstm(x)
        # A mask on the hidden vector is a mask on the rows of the weights: one matrix product for all passes. The
        # sample axis is last in memory, where sorting wants it.
        masked = torch.einsum("kh,sh->hks", self.output.weight, passes)
        predictions = (hidden @ masked.flatten(1)).unflatten(-1, masked.shape[1:])
        return predictions.add_(self.output.bias.unsqueeze(-1)).movedim(-1, 1)

    def read(self, history: Float[Tensor, "batch past n_inputs"], passes: Float[Tensor, "sample hidden"]) -> LSTMState:
        _, (hidden, cell) = self.lstm(history)
        return LSTMState(hidden[0].unsqueeze(1), cell[0].unsqueeze(1), passes)

    def predict(self, state: LSTMState) -> Float[Tensor, "batch sample n_modelled"]:
        return self.output(state.hidden * state.passes)

    def advance(self, state: LSTMState, x: Float[Tensor, "batch sample n_inputs"]) -> LSTMState:
        inputs, recurrent, first_bias, second_bias = self.lstm.all_weights[0]
        gates = x @ inputs.T
        gates += state.hidden @ recurrent.T + (first_bias + second_bias)
        return LSTMState(*lstm_cell(gates, state.cell), state.passes)


def lstm_cell(
    gates: Float[Tensor, "*row gate"], cell: Float[Tensor, "*#row hidden"]
) -> tuple[Float[Tensor, "*row hidden"], Float[Tensor, "*row hidden"]]:
    """The next hidden and cell vectors, from gates before their nonlinearities (in torch's order i, f, g, o)."""
    enter, keep, new, show = gates.chunk(4, dim=-1)
    cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return show.sigmoid() * cell.tanh(), cell


@dataclass
class LSTM(NeuralMethod):
    """An LSTM that predicts the next values; with dropout, the spread of its passes is its distribution."""

    dropout: float = 0.0  # rate, the same in training and in forecasts; 0: deterministic

    def __post_init__(self) -> None:
        self.is_point = self.dropout == 0.0  # then there is one pass only

    def build(self, data: Windows, generator: Generator) -> LSTMNetwork:
        network = LSTMNetwork(data.n_inputs, data.n_modelled, self.hidden_size, self.dropout)
        initialise_weights(network, generator)
        return network
