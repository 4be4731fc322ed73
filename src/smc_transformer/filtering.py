"""The particle filter over whole sequences: select, mutate, weight (the paper's section 3.2).

Index t of every time axis is step t+1 of the mathematics: it draws the latents of slot t and the attention vector
z(t+1), and is weighted by X_{t+1}. As keys, queries and values are the same function of noise whoever
inherits them, they are made for all particles and slots at once; resampling only moves an index table
`lines[b, m, s]`, the particle that holds slot s of particle m's line, and attention reads through it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.nn.attention import Noise
from smc_transformer.predictive import Mixture
from smc_transformer.smc.genealogy import gather_lines, trace_lines, unique_ancestors
from smc_transformer.smc.resampling import RESAMPLERS
from smc_transformer.smc.selection import select
from smc_transformer.smc.weights import effective_sample_size, reweight, uniform_log_weights

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

ON_COLLAPSE = ("error", "uniform")


@dataclass(frozen=True)
class FilterResult:
    """What the particle filter found out about X_1, ..., X_T (index t of the time axes is X_{t+1}).

    Attributes:
        log_increments: estimates of log p(X_t | X_{<t}).
        log_weights: normalised log-weights W_t after each observation.
        ancestors: for each particle of a step, its parent at the step before.
        resampled: whether the particles were resampled before each step.
        predictive: the one-step predictive mixtures, made before each observation was seen.
        noise: the noise behind the latents, from which `SMCTransformer.replay` rebuilds any line.
        attention: attention vectors z of each particle, or None when they were not kept.
    """

    log_increments: Float[Tensor, "batch time"]
    log_weights: Float[Tensor, "batch particle time"]
    ancestors: Int[Tensor, "batch particle time"]
    resampled: Bool[Tensor, "batch time"]
    predictive: Mixture
    noise: Noise
    attention: Float[Tensor, "batch particle time d_model"] | None

    @property
    def log_likelihood(self) -> Float[Tensor, "batch"]:
        """Estimate of log p(X_1, ..., X_T | X_0); its exponential is unbiased."""
        return self.log_increments.sum(dim=-1)

    @property
    def ess(self) -> Float[Tensor, "batch time"]:
        """Effective sample size after each observation, between 1 and the number of particles."""
        return effective_sample_size(self.log_weights.transpose(1, 2))

    @property
    def lines(self) -> Int[Tensor, "batch particle time"]:
        """The ancestral lines of the last particles."""
        return trace_lines(self.ancestors)

    @property
    def unique_ancestors(self) -> Int[Tensor, "batch time"]:
        """How many different particles of each step the last particles descend from."""
        return unique_ancestors(self.lines)


@torch.no_grad()
def particle_filter(
    model: "SMCTransformer",
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    n_particles: int,
    generator: Generator | None = None,
    *,
    on_collapse: str = "error",
    keep_attention: bool = True,
) -> FilterResult:
    """Run the filter; see `SMCTransformer.filter`."""
    inputs, last_targets, targets = model.split(x)
    batch, n_steps = inputs.shape[:2]
    resample = RESAMPLERS[model.config.resampling]
    attention = model.attention

    embedding = model.encoder(inputs).unsqueeze(1)
    noise = attention.draw_noise(batch, n_particles, n_steps, generator)
    latents = attention.latents(embedding, noise)
    attention_noise = attention.attention_covariance.scale(noise.attention)

    themselves = torch.arange(n_particles, device=x.device).expand(batch, n_particles)
    lines = themselves.new_empty(batch, n_particles, n_steps)
    ancestors = torch.empty_like(lines)
    resampled = torch.zeros(batch, n_steps, dtype=torch.bool, device=x.device)
    prior_log_weights = x.new_empty(batch, n_particles, n_steps)
    posterior_log_weights = x.new_empty(batch, n_particles, n_steps)
    log_increments = x.new_empty(batch, n_steps)
    means = x.new_empty(batch, n_particles, n_steps, model.config.n_targets)
    kept = torch.empty_like(noise.attention) if keep_attention else None

    log_weights = uniform_log_weights(x.new_empty(batch, n_particles))
    parents = themselves
    for step in range(n_steps):
        window = slice(attention.first_slot(step), step + 1)
        if step > 0:
            parents, log_weights, resampled[:, step] = select(
                log_weights, resample, ess_threshold=model.config.ess_threshold, generator=generator
            )
            inherited = slice(window.start, step)
            index = parents.unsqueeze(-1).expand(-1, -1, step - window.start)
            lines[:, :, inherited] = lines[:, :, inherited].gather(1, index)
        lines[:, :, step] = themselves
        ancestors[:, :, step] = parents
        prior_log_weights[:, :, step] = log_weights

        z = attention_noise[:, :, step] + attention.attend_one(
            latents.query[:, :, step],
            gather_lines(latents.key[:, :, window], lines[:, :, window]),
            gather_lines(latents.value[:, :, window], lines[:, :, window]),
        )
        mean = model.read_out(z, embedding[:, :, step], last_targets[:, :, step])
        log_density = model.observation.log_density(targets[:, :, step], mean)
        log_weights, log_increments[:, step] = reweight(
            log_weights, log_density, step=step + 1, on_collapse=on_collapse
        )
        posterior_log_weights[:, :, step] = log_weights
        means[:, :, step] = mean
        if kept is not None:
            kept[:, :, step] = z

    return FilterResult(
        log_increments=log_increments,
        log_weights=posterior_log_weights,
        ancestors=ancestors,
        resampled=resampled,
        predictive=model.observation.mixture(prior_log_weights, means),
        noise=noise,
        attention=kept,
    )
