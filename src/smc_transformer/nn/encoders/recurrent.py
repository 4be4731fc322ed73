"""LSTM and GRU encoders."""

from jaxtyping import Float
from torch import Tensor, nn

from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.nn.encoders.base import Position, ResumingEncoder, State

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentEncoder(ResumingEncoder):
    """A recurrent net of `cell` "lstm" or "gru", with `d_model` units in each layer.

    Its state is what the cells remember. Torch keeps this memory as (layer, row, unit), a state as (row, layer, unit).
    """

    def __init__(self, cell: str, n_features: int, d_model: int, n_layers: int = 1):
        super().__init__()
        self.cell = CELLS[cell](n_features, d_model, n_layers, batch_first=True)

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        memory = x.new_zeros(len(x), self.cell.num_layers, self.cell.hidden_size)
        return (memory, memory) if isinstance(self.cell, nn.LSTM) else (memory,)

    def resume(
        self, x: Float[Tensor, "row time feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row time d_model"], State]:
        before = tuple(tensor.transpose(0, 1).contiguous() for tensor in state)
        embedding, memory = self.cell(x, before if isinstance(self.cell, nn.LSTM) else before[0])
        tensors = memory if isinstance(memory, tuple) else (memory,)
        return embedding, tuple(tensor.transpose(0, 1) for tensor in tensors)

    def kernel_form(self) -> EncoderTensors | None:
        cell = self.cell
        if not isinstance(cell, nn.GRU) or cell.num_layers > 1:
            return None
        weights = dict(cell.named_parameters())
        return EncoderTensors(*(weights[f"{name}_l0"] for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")))
