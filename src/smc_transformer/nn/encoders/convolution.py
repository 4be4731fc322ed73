"""Causal convolutions, each layer reaching twice as far back as the one before."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from smc_transformer.nn.encoders.base import CausalEncoder, State


class ConvolutionEncoder(CausalEncoder):
    """Residual layers h + GELU(causal dilated convolution of h); the state is the inputs that each layer still needs.

    Args:
        n_features: features of an input.
        d_model: features of an embedding, and channels of each layer.
        n_layers: layers; layer l has dilation 2^l.
        kernel_size: taps of each convolution.
    """

    def __init__(self, n_features: int, d_model: int, n_layers: int = 2, kernel_size: int = 3):
        super().__init__()
        self.projection = nn.Linear(n_features, d_model)
        self.layers = nn.ModuleList(
            nn.Conv1d(d_model, d_model, kernel_size, dilation=2**layer) for layer in range(n_layers)
        )

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        convolutions = (layer for layer in self.layers if isinstance(layer, nn.Conv1d))
        return tuple(x.new_zeros(len(x), layer.in_channels, _reach(layer)) for layer in convolutions)

    def encode(self, x: Float[Tensor, "row time feature"]) -> tuple[Float[Tensor, "row time d_model"], State]:
        return self._go_on(x, self.start(x))

    def step(
        self, x: Float[Tensor, "row feature"], state: State, position: int
    ) -> tuple[Float[Tensor, "row d_model"], State]:
        embedding, state = self._go_on(x.unsqueeze(1), state)
        return embedding[:, 0], state

    def _go_on(self, x: Float[Tensor, "row time feature"], state: State) -> tuple[Tensor, State]:
        hidden = self.projection(x).transpose(1, 2)  # (row, channel, time)
        remembered = []
        for layer, past in zip(self.layers, state, strict=True):
            seen = torch.cat((past, hidden), dim=-1)
            remembered.append(seen[:, :, seen.shape[-1] - past.shape[-1] :])
            hidden = hidden + F.gelu(layer(seen))
        return hidden.transpose(1, 2), tuple(remembered)


def _reach(layer: nn.Conv1d) -> int:
    """How many past inputs a causal convolution needs."""
    return (layer.kernel_size[0] - 1) * layer.dilation[0]
