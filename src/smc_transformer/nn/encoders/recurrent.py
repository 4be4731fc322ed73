"""LSTM and GRU encoders."""

from jaxtyping import Float
from torch import Tensor, nn

from smc_transformer.nn.encoders.base import CausalEncoder, State

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentEncoder(CausalEncoder):
    """A recurrent net; its state is what the cells remember.

    Args:
        cell: "lstm" or "gru".
        n_features: features of an input.
        d_model: features of an embedding, and units of each layer.
        n_layers: recurrent layers.
    """

    def __init__(self, cell: str, n_features: int, d_model: int, n_layers: int = 1):
        super().__init__()
        self.cell = CELLS[cell](n_features, d_model, n_layers, batch_first=True)

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        memory = x.new_zeros(len(x), self.cell.num_layers, self.cell.hidden_size)
        return (memory, memory) if isinstance(self.cell, nn.LSTM) else (memory,)

    def encode(self, x: Float[Tensor, "row time feature"]) -> tuple[Float[Tensor, "row time d_model"], State]:
        embedding, memory = self.cell(x)
        return embedding, _rows_first(memory)

    def step(
        self, x: Float[Tensor, "row feature"], state: State, position: int
    ) -> tuple[Float[Tensor, "row d_model"], State]:
        memory = tuple(tensor.transpose(0, 1).contiguous() for tensor in state)
        embedding, memory = self.cell(x.unsqueeze(1), memory if len(memory) > 1 else memory[0])
        return embedding[:, 0], _rows_first(memory)


def _rows_first(memory: Tensor | tuple[Tensor, ...]) -> State:
    """Torch keeps (layer, row, unit); a state keeps (row, layer, unit)."""
    tensors = memory if isinstance(memory, tuple) else (memory,)
    return tuple(tensor.transpose(0, 1) for tensor in tensors)
