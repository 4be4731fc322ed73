"""Stochastic self-attention: keys, queries, values and attention vectors are Gaussian random variables.

q(s) = Wq e_s + Sq^(1/2) eps_q(s)    and likewise k(s), v(s)
z(t) = Wo sum_s softmax_s( q(t-1) . k(s) / sqrt(d) ) v(s) + Sz^(1/2) eps_z(t),    max(0, t-D) <= s < t
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from smc_transformer.nn.covariance import COVARIANCES


class Noise(NamedTuple):
    """Standard normal draws eps behind the latents.

    Index t of the time axis holds what step t+1 draws: eps_q, eps_k, eps_v of slot t, and eps_z of z(t+1).
    """

    query: Float[Tensor, "batch particle time d_model"]
    key: Float[Tensor, "batch particle time d_model"]
    value: Float[Tensor, "batch particle time d_model"]
    attention: Float[Tensor, "batch particle time d_model"]


class Latents(NamedTuple):
    """Queries, keys and values of each slot."""

    query: Float[Tensor, "batch particle time d_model"]
    key: Float[Tensor, "batch particle time d_model"]
    value: Float[Tensor, "batch particle time d_model"]


class StochasticSelfAttention(nn.Module):
    """One head of causal self-attention with Gaussian noise on all its vectors.

    Args:
        d_model: size r of keys, queries, values and attention vectors.
        window: number D of past slots attended to; None: all.
        covariance: structure of the four noise covariances.
        variance: their initial variance; 0 makes this an ordinary deterministic attention.
        learn_by_gradient: whether the covariances ask for gradients.
    """

    def __init__(
        self,
        d_model: int,
        window: int | None = None,
        covariance: str = "diagonal",
        variance: float = 0.25,
        *,
        learn_by_gradient: bool = True,
    ):
        super().__init__()
        self.d_model = d_model
        self.window = window
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)
        structure = COVARIANCES[covariance]
        self.query_covariance = structure(d_model, variance, learn_by_gradient=learn_by_gradient)
        self.key_covariance = structure(d_model, variance, learn_by_gradient=learn_by_gradient)
        self.value_covariance = structure(d_model, variance, learn_by_gradient=learn_by_gradient)
        self.attention_covariance = structure(d_model, variance, learn_by_gradient=learn_by_gradient)

    def draw_noise(self, batch: int, n_particles: int, n_steps: int, generator: Generator | None = None) -> Noise:
        """All the standard normal noise of `n_steps` steps, drawn at once."""
        weight = self.query.weight
        draws = torch.randn(
            (4, batch, n_particles, n_steps, self.d_model),
            generator=generator,
            dtype=weight.dtype,
            device=weight.device,
        )
        return Noise(*draws.unbind())

    def means(self, embedding: Float[Tensor, "*batch time d_model"]) -> Latents:
        """The queries, keys and values without their noise."""
        return Latents(self.query(embedding), self.key(embedding), self.value(embedding))

    def latents(self, embedding: Float[Tensor, "batch #particle time d_model"], noise: Noise) -> Latents:
        """Queries, keys and values: means given by the embeddings, plus noise."""
        means = self.means(embedding)
        return Latents(
            means.query + self.query_covariance.scale(noise.query),
            means.key + self.key_covariance.scale(noise.key),
            means.value + self.value_covariance.scale(noise.value),
        )

    def first_slot(self, step: int) -> int:
        """The oldest slot that the query of slot `step` sees; the window reaches from there to `step` itself."""
        return 0 if self.window is None else max(0, step + 1 - self.window)

    def attend_one(
        self,
        query: Float[Tensor, "batch particle d_model"],
        keys: Float[Tensor, "batch particle slot d_model"],
        values: Float[Tensor, "batch particle slot d_model"],
    ) -> Float[Tensor, "batch particle d_model"]:
        """The mean of z for one query per particle, over slots that are already cut to the window."""
        scores = (keys @ query.unsqueeze(-1)).squeeze(-1) / math.sqrt(self.d_model)
        context = (scores.softmax(dim=-1).unsqueeze(-2) @ values).squeeze(-2)
        return self.output(context)

    def attend_all(self, latents: Latents) -> Float[Tensor, "batch particle time d_model"]:
        """The mean of z at every step at once, each over its own causal window."""
        mask = self._causal_mask(latents.query.shape[-2], latents.query.device)
        context = F.scaled_dot_product_attention(latents.query, latents.key, latents.value, attn_mask=mask)
        return self.output(context)

    def _causal_mask(self, n_steps: int, device: torch.device) -> Bool[Tensor, "time time"]:
        """Row t is true at the slots that the query of slot t sees."""
        mask = torch.ones(n_steps, n_steps, dtype=torch.bool, device=device).tril()
        if self.window is not None:
            mask = mask.triu(1 - self.window)
        return mask
