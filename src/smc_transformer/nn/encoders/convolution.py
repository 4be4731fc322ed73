"""Causal convolutions, each layer reaching twice as far back as the one before."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from smc_transformer.nn.encoders.base import Position, ResumingEncoder, State


class ConvolutionEncoder(ResumingEncoder):
    """Residual layers h + GELU(causal convolution of h), of dilation 2^l in layer l, with `kernel_size` taps each.

    The state is the inputs that each layer still needs.
    """

    def __init__(self, n_features: int, d_model: int, n_layers: int = 2, kernel_size: int = 3):
        super().__init__()
        self.projection = nn.Linear(n_features, d_model)
        self.layers = nn.ModuleList(
            nn.Conv1d(d_model, d_model, kernel_size, dilation=2**layer) for layer in range(n_layers)
        )

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        convolutions = (layer for layer in self.layers if isinstance(layer, nn.Conv1d))
        reaches = ((layer.in_channels, (layer.kernel_size[0] - 1) * layer.dilation[0]) for layer in convolutions)
        return tuple(x.new_zeros(len(x), n_channels, n_past) for n_channels, n_past in reaches)

    def resume(
        self, x: Float[Tensor, "row time feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row time d_model"], State]:
        hidden = self.projection(x).transpose(1, 2)  # (row, channel, time)
        remembered = []
        for layer, past in zip(self.layers, state, strict=True):
            seen = torch.cat((past, hidden), dim=-1)
            remembered.append(seen[:, :, seen.shape[-1] - past.shape[-1] :])
            hidden = hidden + F.gelu(layer(seen))
        return hidden.transpose(1, 2), tuple(remembered)
