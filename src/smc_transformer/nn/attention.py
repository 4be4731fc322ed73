"""Stochastic self-attention: keys, queries, values and attention vectors are Gaussian random variables.

    q(s) = Wq e_s + Sq^(1/2) eps_q(s)    and likewise k(s), v(s)
    z(t) = Wo sum_s softmax_s( q(t-1) . k(s) / sqrt(r) ) v(s) + Sz^(1/2) eps_z(t),    max(0, t-D) <= s < t

With several heads, q, k and v are cut into pieces of size r = d / heads, each head has a softmax and noise of its
own, and the contexts are put together again before Wo.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from smc_transformer.kernels.attention import attend_trajectories
from smc_transformer.kernels.choice import in_c
from smc_transformer.kernels.trajectories import perturb_trajectories
from smc_transformer.nn.conditions import explain_attention, explain_perturbation
from smc_transformer.nn.covariance import COVARIANCES, Covariance
from smc_transformer.nn.noise import standard_normal
from smc_transformer.nn.streams import Streams
from smc_transformer.smc.genealogy import gather_trajectories

MATMUL_FROM_SLOTS = 16
"""From so many slots on, batched matrix products beat sums of products on a CPU; with several heads they never do."""


class Noise(NamedTuple):
    """Standard normal draws eps behind the latents, (batch, particle, time, d_model) or those of one step.

    Index t of the time axis holds what step t+1 draws: eps_q, eps_k, eps_v of slot t, and eps_z of z(t+1).
    """

    query: Float[Tensor, "*batch d_model"]
    key: Float[Tensor, "*batch d_model"]
    value: Float[Tensor, "*batch d_model"]
    attention: Float[Tensor, "*batch d_model"]

    def along(self, trajectories: Int[Tensor, "batch trajectory time"]) -> "Noise":
        """The noise of ancestral trajectories."""
        return Noise(*(gather_trajectories(eps, trajectories) for eps in self))

    def at(self, step: int) -> "Noise":
        """The noise of one step, (batch, particle, d_model)."""
        return Noise(*(eps[:, :, step] for eps in self))


class Latents(NamedTuple):
    """Queries, keys and values, of all slots or of one."""

    query: Float[Tensor, "*batch d_model"]
    key: Float[Tensor, "*batch d_model"]
    value: Float[Tensor, "*batch d_model"]


class StochasticSelfAttention(nn.Module):
    """Causal self-attention with Gaussian noise on all its vectors.

    `d_model` is the size of embeddings, attention vectors, and queries, keys and values of all heads together, `window`
    the number D of past slots attended to (None: all). The four noise covariances have the structure `covariance` and
    the initial variance `variance`; 0 makes this an ordinary deterministic attention.
    """

    def __init__(
        self,
        d_model: int,
        window: int | None = None,
        covariance: str = "diagonal",
        variance: float = 0.25,
        n_heads: int = 1,
    ):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"n_heads must divide d_model={d_model}, got {n_heads}")
        self.d_model = d_model
        self.window = window
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        covariances = [COVARIANCES[covariance](d_model, variance, learn_by_gradient=True) for _ in range(4)]
        self.query_covariance, self.key_covariance, self.value_covariance, self.attention_covariance = covariances

    @property
    def covariances(self) -> tuple[Covariance, Covariance, Covariance, Covariance]:
        """The covariances of the noises, in the order of `Noise`."""
        return self.query_covariance, self.key_covariance, self.value_covariance, self.attention_covariance

    def draw_noise(self, batch: int, n_particles: int, n_steps: int, generator: Generator | None = None) -> Noise:
        """All the standard normal noise of `n_steps` steps, drawn at once."""
        if isinstance(generator, Streams):  # the noise of a step is told by the step, not by where a draw began
            steps = generator.steps.unsqueeze(-1) + torch.arange(n_steps)
            each = Streams(generator.keys.repeat_interleave(n_steps), steps.flatten(), generator.next_draw())
            rows = standard_normal((batch * n_steps, 4, n_particles, self.d_model), self.query.weight.detach(), each)
            return Noise(*rows.unflatten(0, (batch, n_steps)).transpose(1, 3).unbind(2))
        # In memory a step's particles lie side by side: that is how the filter reads them.
        shape = (4, batch, n_steps, n_particles, self.d_model)
        draws = standard_normal(shape, self.query.weight.detach(), generator).transpose(2, 3)
        return Noise(*draws.unbind())

    def means(self, embedding: Float[Tensor, "*batch d_model"]) -> Latents:
        """The queries, keys and values without their noise."""
        return Latents(self.query(embedding), self.key(embedding), self.value(embedding))

    def latents(
        self,
        embedding: Float[Tensor, "*_ d_model"],
        noise: Noise,
        trajectories: Int[Tensor, "batch trajectory time"] | None = None,
    ) -> Latents:
        """Queries, keys and values: means given by the embeddings e_s, plus noise.

        `trajectories` name the particle whose noise each trajectory has at each step; the noise is then that of all
        particles, (batch, particle, time, d_model). None: it is the noise of the trajectories already.
        """
        parts = zip(self.means(embedding), self.covariances[:3], noise[:3], strict=True)
        return Latents(*(_noisy(mean, covariance, eps, trajectories) for mean, covariance, eps in parts))

    def deviation(
        self, noise: Noise, trajectories: Int[Tensor, "batch trajectory time"] | None = None
    ) -> Float[Tensor, "*batch d_model"]:
        """The deviation of z from its mean, Sz^(1/2) eps_z; `noise` and `trajectories` as in `latents`."""
        return _noisy(None, self.attention_covariance, noise.attention, trajectories)

    def first_slot(self, step: int) -> int:
        """The oldest slot that the query of slot `step` sees; the window reaches from there to `step` itself."""
        return 0 if self.window is None else max(0, step + 1 - self.window)

    def n_earlier(self, slot: Int[Tensor, "batch"]) -> Int[Tensor, "batch"]:
        """How many of the slots before its own the query of a slot sees."""
        return slot if self.window is None else slot.clamp(max=self.window - 1)

    def attend_one(
        self,
        query: Float[Tensor, "batch particle d_model"],
        keys: Float[Tensor, "batch particle slot d_model"],
        values: Float[Tensor, "batch particle slot d_model"],
        seen: Bool[Tensor, "batch slot"] | None = None,
    ) -> Float[Tensor, "batch particle d_model"]:
        """The mean of z for one query per particle, over slots that are already cut to the window.

        Where sequences see different ones of the slots, `seen` tells which; the others may hold anything.
        """
        by_head, in_products = (self.n_heads, -1), self.n_heads == 1 and keys.shape[-2] >= MATMUL_FROM_SLOTS
        column = query.unsqueeze(-1)
        scores = keys @ column if in_products else (keys * column.mT).unflatten(-1, by_head).sum(dim=-1)
        if seen is not None:
            mask = seen.to(keys.device)[:, None, :, None]
            scores, values = scores.where(mask, -torch.inf), values.where(mask, 0.0)
        shares = (scores / math.sqrt(self.d_model // self.n_heads)).softmax(dim=-2)
        if in_products:
            return self.output((shares.mT @ values).squeeze(-2))
        return self.output((shares.unsqueeze(-1) * values.unflatten(-1, by_head)).sum(dim=-3).flatten(-2))

    def attend_all(self, latents: Latents) -> Float[Tensor, "batch particle time d_model"]:
        """The mean of z at every step at once, each over its own causal window."""
        if in_c(explain_attention(latents.query)):
            return self.output(attend_trajectories(*latents, self.n_heads, self.window))
        shape, device = latents.query.shape, latents.query.device
        mask = torch.ones(shape[-2], shape[-2], dtype=torch.bool, device=device).tril()
        if self.window is not None:
            mask = mask.triu(1 - self.window)
        by_head = [part.unflatten(-1, (self.n_heads, -1)).transpose(-2, -3).flatten(0, 1) for part in latents]
        context = F.scaled_dot_product_attention(by_head[0], by_head[1], by_head[2], attn_mask=mask)
        return self.output(context.unflatten(0, shape[:2]).transpose(-2, -3).flatten(-2))


def _noisy(mean: Tensor | None, covariance: Covariance, eps: Tensor, trajectories: Tensor | None) -> Tensor:
    """Mean + S^(1/2) eps, with the eps of given trajectories."""
    if trajectories is not None and in_c(explain_perturbation(covariance, eps)):
        return perturb_trajectories(mean, covariance.factor.expand(covariance.size), eps, trajectories)
    deviation = covariance.scale(eps if trajectories is None else gather_trajectories(eps, trajectories))
    return deviation if mean is None else mean + deviation
