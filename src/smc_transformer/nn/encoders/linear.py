"""The paper's encoder: a linear map of each observation, e_s = W X_s + b, plus a position encoding if asked for."""

from jaxtyping import Float
from torch import Tensor, nn

from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.nn.encoders.base import CausalEncoder, State
from smc_transformer.nn.encoders.position import make_position


class LinearEncoder(CausalEncoder):
    """A linear map of each input, plus an encoding of its position; it remembers nothing."""

    def __init__(self, n_features: int, d_model: int, position_encoding: str | None = None, max_positions: int = 512):
        super().__init__()
        self.projection = nn.Linear(n_features, d_model)
        self.position = make_position(position_encoding, d_model, max_positions)

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        return ()

    def encode(self, x: Float[Tensor, "row time feature"]) -> tuple[Float[Tensor, "row time d_model"], State]:
        return self.embed(x, 0, x.shape[1]), ()

    def step(
        self, x: Float[Tensor, "row feature"], state: State, position: int
    ) -> tuple[Float[Tensor, "row d_model"], State]:
        return self.embed(x, position, 1), ()

    def kernel_form(self) -> EncoderTensors:
        return EncoderTensors(self.projection.weight, self.projection.bias)

    def embed(self, x: Float[Tensor, "*row feature"], position: int, length: int) -> Float[Tensor, "*row d_model"]:
        """The embeddings of inputs at `length` positions from `position` on."""
        embedding: Tensor = self.projection(x)
        return embedding if self.position is None else embedding + self.position(position, length).to(embedding)
