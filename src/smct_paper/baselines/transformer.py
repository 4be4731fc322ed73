"""A causal transformer of one layer and one head, with or without Monte Carlo dropout (the paper's appendix B).

It is the deterministic counterpart of the SMC Transformer: the same embedding and read-out, with positions added.
Dropout comes after the attention and before the last layer norm.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from smc_transformer.learning.schedule import Schedule, warmup_inverse_sqrt
from smc_transformer.nn.encoders.linear import LinearEncoder
from smc_transformer.nn.initialisation import initialise_weights
from smc_transformer.nn.readout import TransformerReadout
from smc_transformer.support.chunks import chunk_size
from smct_paper.baselines.base import fill_forward
from smct_paper.baselines.network import Network, draw_masks, observed_mse
from smct_paper.baselines.neural import NeuralMethod
from smct_paper.datasets import Windows

ROWS_AT_ONCE = 2**14
"""Vectors that pass through the feed-forward net together, which keeps them in the caches."""


class AttentionState(NamedTuple):
    """What has been read: keys and values that all passes share, then those of each pass, the last step, and masks."""

    shared_keys: Float[Tensor, "batch past d_model"]
    shared_values: Float[Tensor, "batch past d_model"]
    own_keys: Float[Tensor, "batch sample own d_model"]
    own_values: Float[Tensor, "batch sample own d_model"]
    attention: Float[Tensor, "batch #sample d_model"]
    embedding: Float[Tensor, "batch #sample d_model"]
    passes: Float[Tensor, "sample 2 d_model"]


class TransformerNetwork(Network):
    """z = attention over the past; h = LN(drop(z) + e), y = LN(h + drop(FFN(h))), prediction = W y + b.

    Dropout comes after the attention weights, so those are computed once for all passes.
    """

    def __init__(self, n_inputs: int, n_modelled: int, d_model: int, d_ff: int, dropout: float):
        super().__init__()
        self.encoder = LinearEncoder(n_inputs, d_model, position_encoding="sinusoidal")
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)
        self.attention_output = nn.Linear(d_model, d_model, bias=False)
        self.readout = TransformerReadout(d_model, d_ff, n_modelled)
        self.d_model = d_model
        self.dropout = dropout

    def _attend(self, x: Float[Tensor, "batch time n_inputs"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Attention vectors, embeddings, keys and values of whole sequences."""
        embedding = self.encoder(x)
        queries, keys, values = self.query_key_value(embedding).chunk(3, dim=-1)
        context = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.attention_output(context), embedding, keys, values

    def _predict(
        self,
        attention: Float[Tensor, "*#shape d_model"],
        embedding: Float[Tensor, "*#shape d_model"],
        passes: Float[Tensor, "*#shape 2 d_model"],
    ) -> Float[Tensor, "*shape n_modelled"]:
        """The rest of the layer, under given masks."""
        readout = self.readout
        hidden = readout.attention_norm(attention * passes[..., 0, :] + embedding)
        changed = hidden + readout.feed_forward(hidden) * passes[..., 1, :]
        return readout.projection(readout.output_norm(changed))

    def loss(self, x: Float[Tensor, "batch time_plus_1 n_inputs"], generator: Generator) -> Float[Tensor, ""]:
        attention, embedding, _, _ = self._attend(fill_forward(x)[:, :-1])
        rate = self.dropout if self.training else 0.0
        masks = draw_masks((*attention.shape[:-1], 2, self.d_model), rate, generator)
        return observed_mse(self._predict(attention, embedding, masks), x)

    def draw_passes(self, n_passes: int, generator: Generator | None) -> Float[Tensor, "sample 2 d_model"]:
        return draw_masks((n_passes, 2, self.d_model), self.dropout, generator)

    def all_steps(
        self, x: Float[Tensor, "batch time n_inputs"], passes: Float[Tensor, "sample 2 d_model"]
    ) -> Float[Tensor, "batch sample time n_modelled"]:
        attention, embedding, _, _ = self._attend(x)
        at_once = chunk_size(ROWS_AT_ONCE, len(passes))
        rows = zip(attention.flatten(0, 1).split(at_once), embedding.flatten(0, 1).split(at_once), strict=True)
        predictions = x.new_empty(x.shape[0] * x.shape[1], self.readout.projection.out_features, len(passes))
        for number, (z, e) in enumerate(rows):
            found = self._predict(z.unsqueeze(1), e.unsqueeze(1), passes)
            predictions[number * at_once : (number + 1) * at_once] = found.transpose(1, 2)
        return predictions.unflatten(0, x.shape[:2]).movedim(-1, 1)

    def read(
        self, history: Float[Tensor, "batch past n_inputs"], passes: Float[Tensor, "sample 2 d_model"]
    ) -> AttentionState:
        attention, embedding, keys, values = self._attend(history)
        nothing = history.new_empty(len(history), len(passes), 0, self.d_model)
        return AttentionState(keys, values, nothing, nothing, attention[:, -1:], embedding[:, -1:], passes)

    def predict(self, state: AttentionState) -> Float[Tensor, "batch sample n_modelled"]:
        return self._predict(state.attention, state.embedding, state.passes)

    def advance(self, state: AttentionState, x: Float[Tensor, "batch sample n_inputs"]) -> AttentionState:
        n_shared, n_own = state.shared_keys.shape[1], state.own_keys.shape[2]
        embedding = self.encoder.step(x.flatten(0, 1), (), n_shared + n_own)[0].unflatten(0, x.shape[:2])
        query, key, value = self.query_key_value(embedding).chunk(3, dim=-1)
        own_keys = torch.cat((state.own_keys, key.unsqueeze(2)), dim=2)
        own_values = torch.cat((state.own_values, value.unsqueeze(2)), dim=2)
        logits = torch.cat((query @ state.shared_keys.mT, (own_keys @ query.unsqueeze(-1)).squeeze(-1)), dim=-1)
        weights = (logits / math.sqrt(self.d_model)).softmax(dim=-1)
        context = weights[..., :n_shared] @ state.shared_values
        context += (weights[..., None, n_shared:] @ own_values).squeeze(-2)
        attention = self.attention_output(context)
        return state._replace(own_keys=own_keys, own_values=own_values, attention=attention, embedding=embedding)


@dataclass
class Transformer(NeuralMethod):
    """A transformer that predicts the next values; with dropout, the spread of its passes is its distribution."""

    learning_rate: float = 1.0  # a factor on the schedule of Vaswani et al. (2017)
    dropout: float = 0.0  # rate, the same in training and in forecasts; 0: deterministic
    feed_forward_size: int = 32  # hidden units of the feed-forward net
    warmup_steps: int = 4000  # of the schedule; a short training needs fewer

    def __post_init__(self) -> None:
        self.is_point = self.dropout == 0.0  # then there is one pass only

    def schedule(self) -> Schedule:
        return warmup_inverse_sqrt(self.hidden_size, self.warmup_steps)

    def build(self, data: Windows, generator: Generator) -> TransformerNetwork:
        network = TransformerNetwork(
            data.n_inputs, data.n_modelled, self.hidden_size, self.feed_forward_size, self.dropout
        )
        initialise_weights(network, generator)
        return network
