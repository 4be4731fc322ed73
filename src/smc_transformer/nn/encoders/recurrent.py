"""LSTM and GRU encoders."""

from jaxtyping import Float
from torch import Tensor, nn

from smc_transformer.kernels.choice import about_numbers, in_c
from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.kernels.recurrent import encode_trees, straight_trees
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

    def encode(self, x: Float[Tensor, "row time feature"]) -> tuple[Float[Tensor, "row time d_model"], State]:
        form = self.kernel_form()
        if form is None or not in_c(self.explain(x)):
            return super().encode(x)
        among = straight_trees(*x.shape[:2])
        embedding = encode_trees(form, among.gathered(x.unsqueeze(1)), among).index_select(0, among.nodes.flatten())
        embedding = embedding.view(*x.shape[:2], -1)
        return embedding, (embedding[:, -1:],)

    def explain(self, x: Float[Tensor, "row time feature"]) -> list[str]:
        """Why C cannot run the cell over whole sequences, so that torch does it; none: it can."""
        cell, reasons = self.cell, about_numbers(x)
        if type(self) is not RecurrentEncoder or type(cell) is not nn.GRU or cell.num_layers > 1:
            reasons.append("the cell is no GRU of one layer")
        if cell._forward_hooks or cell._forward_pre_hooks or "forward" in vars(cell) or "resume" in vars(self):
            reasons.append("a method of the encoder was replaced, or a hook is registered on its cell")
        if x.requires_grad:
            reasons.append("gradients of the inputs are wanted")
        return [f"a recurrent encoder in torch: {reason}" for reason in reasons]

    def kernel_form(self) -> EncoderTensors | None:
        cell = self.cell
        if not isinstance(cell, nn.GRU) or cell.num_layers > 1:
            return None
        names = ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0")
        return EncoderTensors(*(getattr(cell, name) for name in names))
