"""Read-outs G: from an attention vector z(t) and the last embedding e_{t-1} to the parameters of p(X_t | z)."""

from jaxtyping import Float
from torch import Tensor, nn


class TransformerReadout(nn.Module):
    """The rest of a transformer layer: h = LN(z + e), y = LN(h + FFN(h)), out = W_out y + b_out."""

    def __init__(self, d_model: int, d_ff: int, n_outputs: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.output_norm = nn.LayerNorm(d_model)
        self.projection = nn.Linear(d_model, n_outputs)

    def forward(
        self, attention: Float[Tensor, "*batch d_model"], embedding: Float[Tensor, "*#batch d_model"]
    ) -> Float[Tensor, "*batch n_outputs"]:
        hidden = self.attention_norm(attention + embedding)
        return self.projection(self.output_norm(hidden + self.feed_forward(hidden)))


class LinearReadout(nn.Module):
    """out = W_out (z + e) + b_out: a model whose likelihood is known exactly when the window is 1."""

    def __init__(self, d_model: int, d_ff: int, n_outputs: int):
        super().__init__()
        self.projection = nn.Linear(d_model, n_outputs)

    def forward(
        self, attention: Float[Tensor, "*batch d_model"], embedding: Float[Tensor, "*#batch d_model"]
    ) -> Float[Tensor, "*batch n_outputs"]:
        return self.projection(attention + embedding)


READOUTS: dict[str, type[TransformerReadout] | type[LinearReadout]] = {
    "transformer": TransformerReadout,
    "linear": LinearReadout,
}
