"""Deterministic transformer layers below the stochastic one: the L-1 first layers of an L-layer transformer."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from smc_transformer.nn.encoders.base import Position, ResumingEncoder, State
from smc_transformer.nn.encoders.linear import LinearEncoder


class TransformerEncoder(ResumingEncoder):
    """A linear embedding with positions, then `n_layers` causal self-attention layers of `n_heads` heads each.

    The state is their keys and values.
    """

    def __init__(
        self,
        n_features: int,
        d_model: int,
        n_layers: int = 1,
        n_heads: int = 1,
        d_ff: int = 32,
        position_encoding: str | None = None,
        max_positions: int = 512,
    ):
        super().__init__()
        self.embedding = LinearEncoder(n_features, d_model, position_encoding, max_positions)
        self.layers = nn.ModuleList(CausalLayer(d_model, n_heads, d_ff) for _ in range(n_layers))

    def start(self, x: Float[Tensor, "row ..."]) -> State:
        nothing = x.new_empty(len(x), 0, self.embedding.projection.out_features)
        return (nothing, nothing) * len(self.layers)

    def resume(
        self, x: Float[Tensor, "row time feature"], state: State, position: Position
    ) -> tuple[Float[Tensor, "row time d_model"], State]:
        hidden, _ = self.embedding.resume(x, (), position)
        caches: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            hidden, keys, values = layer(hidden, state[2 * number], state[2 * number + 1])
            caches += (keys, values)
        return hidden, tuple(caches)


class CausalLayer(nn.Module):
    """One transformer layer: h = LN(x + attention(x)), LN(h + FFN(h))."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int):
        super().__init__()
        self.n_heads = n_heads
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)
        self.attention_norm = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.output_norm = nn.LayerNorm(d_model)

    def forward(
        self,
        x: Float[Tensor, "row time d_model"],
        past_keys: Float[Tensor, "row past d_model"],
        past_values: Float[Tensor, "row past d_model"],
    ) -> tuple[Float[Tensor, "row time d_model"], Tensor, Tensor]:
        """The layer's output, and its keys and values with those of the past before them."""
        queries, keys, values = self.query_key_value(x).chunk(3, dim=-1)
        keys, values = torch.cat((past_keys, keys), dim=1), torch.cat((past_values, values), dim=1)
        n_past, n_new = past_keys.shape[1], x.shape[1]
        visible = torch.ones(n_new, n_past + n_new, dtype=torch.bool, device=x.device).tril(n_past)
        by_head = [part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in (queries, keys, values)]
        context = F.scaled_dot_product_attention(by_head[0], by_head[1], by_head[2], attn_mask=visible)
        hidden = self.attention_norm(x + self.output(context.transpose(1, 2).flatten(2)))
        return self.output_norm(hidden + self.feed_forward(hidden)), keys, values
