"""The paper's encoder: a linear map of each observation, e_s = W X_s + b, plus a position encoding if asked for."""

from jaxtyping import Float
from torch import Tensor, nn

from smc_transformer.nn.encoders.base import CausalEncoder, State
from smc_transformer.nn.encoders.position import make_position


class LinearEncoder(CausalEncoder):
    """A linear map of each input; it remembers nothing.

    Args:
        n_features: features of an input.
        d_model: features of an embedding.
        position_encoding: None (the paper), "sinusoidal" or "learned".
        max_positions: length of the table of learned positions.
    """

    def __init__(self, n_features: int, d_model: int, position_encoding: str | None = None, max_positions: int = 512):
        super().__init__()
        self.projection = nn.Linear(n_features, d_model)
        self.position = make_position(position_encoding, d_model, max_positions)

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        return ()

    def encode(self, x: Float[Tensor, "row time feature"]) -> tuple[Float[Tensor, "row time d_model"], State]:
        embedding: Tensor = self.projection(x)
        if self.position is not None:
            embedding = embedding + self.position(0, x.shape[1]).to(embedding)
        return embedding, ()

    def step(
        self, x: Float[Tensor, "row feature"], state: State, position: int
    ) -> tuple[Float[Tensor, "row d_model"], State]:
        embedding: Tensor = self.projection(x)
        if self.position is not None:
            embedding = embedding + self.position(position, 1).to(embedding)
        return embedding, ()
