"""Where particles look: attention weights over the past slots, and how much they differ between particles.

    a(s) = softmax_s( q(t) . k(s) / sqrt(r) ),    t - D < s <= t

with the query of the last row t, whose attention predicts the next one. Keys are read along each particle's ancestral
trajectory, weights are averaged over heads. The filter does not keep queries, so they are drawn here (and so is the key
of the last row, where the particles have not moved yet): nothing has been observed that would tell more about them.
"""

from dataclasses import replace
from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.fitted import Following
from smc_transformer.forecaster.following import meet_known
from smc_transformer.forecaster.frequency import offset_of
from smc_transformer.forecaster.table import Name
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import embed
from smc_transformer.inference.stream import StreamState
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.report.page.data import AttentionPage, plain_list, plain_times
from smc_transformer.smc.genealogy import gather_trajectories


class PastAttention(NamedTuple):
    """Attention weights of particles over past slots, the oldest first; the last slot is that of the last row."""

    weights: Float[Tensor, "batch particle slot"]
    """They sum to one over slots."""
    log_weights: Float[Tensor, "batch particle"]
    """Of the particles."""

    @property
    def mean(self) -> Float[Tensor, "batch slot"]:
        """The weighted mean across particles."""
        return (self.log_weights.exp().unsqueeze(-1) * self.weights).sum(dim=1)

    def quantile(self, p: float) -> Float[Tensor, "batch slot"]:
        """The smallest weight of a slot that a share p of the particles does not exceed."""
        if not 0.0 < p < 1.0:
            raise ValueError(f"a quantile needs a probability strictly between 0 and 1, got {p}")
        ordered, order = self.weights.sort(dim=1)
        shares = self.log_weights.exp().unsqueeze(-1).expand_as(self.weights).gather(1, order)
        # With a little tolerance: the rounding of weights must not decide between two particles.
        below = (shares.double().cumsum(dim=1) < p - 1e-6).sum(dim=1, keepdim=True)
        return ordered.gather(1, below.clamp(max=self.weights.shape[1] - 1))[:, 0]


@torch.no_grad()
def attention_ahead(
    network: Network, particles: ParticleState, generator: Generator | None = None, noise: Noise | None = None
) -> PastAttention:
    """The attention of particles that have been weighted by their last row, but have not moved on yet.

    They stay as they are. The standard noise of the step, (batch, particle, d_model), is drawn if it is not given.
    """
    noise = _step_noise(network.attention, particles, generator) if noise is None else noise
    latents = network.attention.latents(embed(network, replace(particles)), noise)
    past = _keys(particles, network.attention.n_earlier(particles.n_slots))
    keys = torch.cat((past, latents.key.unsqueeze(2)), dim=2)
    return PastAttention(_weights(network.attention, latents.query, keys), particles.log_weights)


@torch.no_grad()
def attention_of_stream(
    state: StreamState, generator: Generator | None = None, noise: Noise | None = None
) -> PastAttention:
    """The attention of the particles of a stream, which have moved on to predict the next observation.

    The stream stays as it is. The standard noise of the last step (its query alone is used) is drawn if not given.
    """
    particles, prediction = state.begun()
    attention = state.network.attention
    noise = _step_noise(attention, particles, generator) if noise is None else noise
    query = attention.latents(prediction.moved.embedding, noise).query
    keys = _keys(particles, 1 + attention.n_earlier(particles.n_slots - 1))
    return PastAttention(_weights(attention, query, keys), particles.log_weights)


def series_attention(
    forecaster: Forecaster,
    following: Following,
    name: Name,
    known: Float[Tensor, "1 known"],
    generator: Generator | None,
) -> AttentionPage:
    """The attention behind the first step of the forecast of a series, where `known` is what is known ahead."""
    particles = following.fleet.take([name])
    meet_known(forecaster.model, particles, known)
    attention = attention_ahead(forecaster.model, particles, generator)
    last, n_slots, freq = following.series[name].last_time, attention.weights.shape[-1], forecaster.settings.freq
    if isinstance(freq, str):
        slots = pd.date_range(end=last, periods=n_slots, freq=offset_of(freq))
    else:
        slots = pd.Index(range(int(last) - freq * (n_slots - 1), int(last) + 1, freq), dtype="int64")
    mean, lower, upper = (plain_list(one[0]) for one in (attention.mean, *map(attention.quantile, (0.05, 0.95))))
    return AttentionPage(plain_times(slots), mean, lower, upper)


def _step_noise(attention: StochasticSelfAttention, particles: ParticleState, generator: Generator | None) -> Noise:
    return attention.draw_noise(len(particles), particles.n_particles, 1, generator).at(0)


def _keys(particles: ParticleState, n_slots: Int[Tensor, "batch"]) -> Float[Tensor, "batch particle slot d_model"]:
    """The keys of the last slots of each particle's trajectory, in the order of time."""
    if particles.past is not None:
        raise ValueError("the particles of a forecast share their past: ask those that it began from")
    if n_slots.ne(n_slots[0]).any():
        raise ValueError("sequences with pasts of different lengths have attention of different lengths: ask each")
    past = particles.last_slots(n_slots, particles.themselves)
    return gather_trajectories(past.keys, past.trajectories)


def _weights(
    attention: StochasticSelfAttention,
    query: Float[Tensor, "batch particle d_model"],
    keys: Float[Tensor, "batch particle slot d_model"],
) -> Float[Tensor, "batch particle slot"]:
    """The softmax of every head, averaged over heads."""
    size = attention.d_model // attention.n_heads
    products = (keys * query.unsqueeze(-2)).unflatten(-1, (attention.n_heads, size))
    return (products.sum(dim=-1) / size**0.5).softmax(dim=-2).mean(dim=-1)
