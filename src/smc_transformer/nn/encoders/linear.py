"""The paper's encoder: a linear map of each observation, e_s = W X_s + b, plus a position encoding if asked for."""

from jaxtyping import Float
from torch import Tensor, nn

from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.nn.encoders.base import Position, ResumingEncoder, State
from smc_transformer.nn.encoders.position import make_position


class LinearEncoder(ResumingEncoder):
    """A linear map of each input, plus an encoding of its position; it remembers nothing."""

    def __init__(self, n_features: int, d_model: int, position_encoding: str | None = None, max_positions: int = 512):
        super().__init__()
        self.projection = nn.Linear(n_features, d_model)
        self.position = make_position(position_encoding, d_model, max_positions)

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        return ()

    def resume(
        self, x: Float[Tensor, "row time feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row time d_model"], State]:
        embedding: Tensor = self.projection(x)
        if self.position is not None:
            embedding = embedding + self.position(position, x.shape[1]).to(embedding)
        return embedding, ()

    def kernel_form(self) -> EncoderTensors:
        return EncoderTensors(self.projection.weight, self.projection.bias)
