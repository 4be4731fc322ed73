"""The particle filter over whole sequences: select, mutate, weight (the paper's section 3.2).

Index t of every time axis is step t+1 of the mathematics: it draws the latents of slot t and the attention vector
z(t+1), and is weighted by X_{t+1}. A missing X_{t+1} (NaN) is drawn by each particle for itself, which then goes on
with it as its own input; where coordinates are missing, the others weight, and the missing ones are drawn given them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from smc_transformer.inference import engine
from smc_transformer.inference.population import Population
from smc_transformer.inference.proposals import PROPOSALS
from smc_transformer.kernels.filter import FilterOutputs
from smc_transformer.nn.attention import Noise
from smc_transformer.predictive import Mixture
from smc_transformer.smc.genealogy import trace_trajectories, unique_ancestors
from smc_transformer.smc.weights import effective_sample_size

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer

ON_COLLAPSE = ("error", "uniform")


@dataclass(frozen=True)
class FilterResult:
    """What the particle filter found out about X_1, ..., X_T (index t of the time axes is X_{t+1}).

    Attributes:
        log_increments: estimates of log p(X_t | X_{<t}); 0 where nothing was observed.
        log_weights: normalised log-weights W_t after each observation.
        ancestors: for each particle of a step, its parent at the step before.
        resampled: whether the particles were resampled before each step.
        predictive: the one-step predictive mixtures, made before each observation was seen.
        noise: the noise behind the latents, from which `SMCTransformer.replay` rebuilds any trajectory.
        read_outs: the parameters of p(X_t | z) of each particle, as it was weighted: those of
            `predictive`, unless the proposal has drawn its z again.
        attention: attention vectors z of each particle, or None when they were not kept.
        completed: targets X_1, ..., X_T as each particle completed them, or None when none were missing.
    """

    log_increments: Float[Tensor, "batch time"]
    log_weights: Float[Tensor, "batch particle time"]
    ancestors: Int[Tensor, "batch particle time"]
    resampled: Bool[Tensor, "batch time"]
    predictive: Mixture
    noise: Noise
    read_outs: Float[Tensor, "batch particle time n_parameters"]
    attention: Float[Tensor, "batch particle time d_model"] | None
    completed: Float[Tensor, "batch particle time n_targets"] | None

    @property
    def log_likelihood(self) -> Float[Tensor, "batch"]:
        """Estimate of log p(X_1, ..., X_T | X_0) of what was observed; its exponential is unbiased."""
        return self.log_increments.sum(dim=-1)

    @property
    def ess(self) -> Float[Tensor, "batch time"]:
        """Effective sample size after each observation, between 1 and the number of particles."""
        return effective_sample_size(self.log_weights.transpose(1, 2))

    @property
    def trajectories(self) -> Int[Tensor, "batch particle time"]:
        """The ancestral trajectories of the last particles."""
        return trace_trajectories(self.ancestors)

    @property
    def unique_ancestors(self) -> Int[Tensor, "batch time"]:
        """How many different particles of each step the last particles descend from."""
        return unique_ancestors(self.trajectories)


class Trace(NamedTuple):
    """What the filter writes down at each step; the names and shapes are those of `FilterResult`."""

    ancestors: Int[Tensor, "batch particle time"]
    resampled: Bool[Tensor, "batch time"]
    log_increments: Float[Tensor, "batch time"]
    prior_log_weights: Float[Tensor, "batch particle time"]
    log_weights: Float[Tensor, "batch particle time"]
    parameters: Float[Tensor, "batch particle time n_parameters"]
    read_outs: Float[Tensor, "batch particle time n_parameters"]
    attention: Float[Tensor, "batch particle time d_model"] | None
    completed: Float[Tensor, "batch particle time n_targets"] | None


@torch.no_grad()
def particle_filter(
    model: "SMCTransformer",
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    n_particles: int,
    generator: Generator | None = None,
    *,
    on_collapse: str = "error",
    keep_attention: bool = False,
    noise: Noise | None = None,
) -> FilterResult:
    """Run the filter; `noise` instead of fresh draws makes runs comparable."""
    noise = _noise_for(model, x, n_particles, generator, noise)
    trace, _ = _run(model, x, noise, on_collapse, generator, keep_attention=keep_attention)
    return FilterResult(
        log_increments=trace.log_increments,
        log_weights=trace.log_weights,
        ancestors=trace.ancestors,
        resampled=trace.resampled,
        predictive=model.observation.mixture(trace.prior_log_weights, trace.parameters),
        noise=noise,
        read_outs=trace.read_outs,
        attention=trace.attention,
        completed=trace.completed,
    )


@torch.no_grad()
def filter_population(
    model: "SMCTransformer",
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    n_particles: int,
    generator: Generator | None = None,
    *,
    on_collapse: str = "error",
    noise: Noise | None = None,
) -> Population:
    """Run the filter; returns the particles as they stand at the end, ready to go on."""
    noise = _noise_for(model, x, n_particles, generator, noise)
    _, population = _run(model, x, noise, on_collapse, generator, keep_population=True)
    assert population is not None
    return population


def _noise_for(
    model: "SMCTransformer", x: Tensor, n_particles: int, generator: Generator | None, given: Noise | None
) -> Noise:
    """Given or fresh noise; a proposal that draws z again writes down the noise of it, in a copy."""
    if given is None:
        return model.attention.draw_noise(len(x), n_particles, x.shape[1] - 1, generator)
    return given._replace(attention=given.attention.clone()) if PROPOSALS[model.config.proposal].draws_again else given


def _run(
    model: "SMCTransformer",
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    noise: Noise,
    on_collapse: str,
    generator: Generator | None,
    *,
    keep_attention: bool = False,
    keep_population: bool = False,
) -> tuple[Trace, Population | None]:
    batch, n_particles, n_steps, d_model = noise.query.shape
    n_targets = model.config.n_targets
    observed = ~x[:, 1:, :n_targets].isnan()
    missing_steps = (~observed).any(dim=-1).any(dim=0)
    # Inputs are shared by all particles up to the first gap; from there on each particle has its own.
    n_shared = 1 + int(missing_steps.int().argmax()) if missing_steps.any() else n_steps
    embedding, encoder_state = model.encoder.encode(model.observation.features(x[:, :n_shared]))

    def empty(*shape: int) -> Tensor:
        return x.new_empty(batch, n_particles, n_steps, *shape)

    parameters = empty(model.observation.n_parameters)
    draws_again = PROPOSALS[model.config.proposal].draws_again
    trace = Trace(
        ancestors=empty().long(),
        resampled=torch.zeros(batch, n_steps, dtype=torch.bool, device=x.device),
        log_increments=x.new_zeros(batch, n_steps),
        prior_log_weights=empty(),
        log_weights=empty(),
        parameters=parameters,
        read_outs=torch.empty_like(parameters) if draws_again else parameters,
        attention=empty(d_model) if keep_attention else None,
        completed=empty(n_targets) if missing_steps.any() else None,
    )
    fast = engine.can_filter(model, x)
    population = None
    if keep_population or not fast:
        population = Population(model, x[:, None, 0], n_particles, capacity=n_steps, encoder_state=encoder_state)
    if fast:
        caches = () if population is None else (population.keys, population.values, population.trajectories)
        out = FilterOutputs(*trace[:6], trace.attention, *caches)
        engine.run_filter(model, x, embedding, noise, out, on_collapse, generator)
        if population is not None:
            population.stand_at_end(x[:, None, -1], trace.log_weights[:, :, -1])
    elif population is not None:
        _walk(population, x, observed, missing_steps, embedding, noise, trace, on_collapse, generator)
    return trace, population


def _walk(
    population: Population,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    observed: Bool[Tensor, "batch time n_targets"],
    missing_steps: Bool[Tensor, "time"],
    embedding: Float[Tensor, "batch shared d_model"],
    noise: Noise,
    trace: Trace,
    on_collapse: str,
    generator: Generator | None,
) -> None:
    """Take the particles through all steps, one after the other, and write the trace."""
    model = population.model
    proposal = PROPOSALS[model.config.proposal]
    for step, gap in enumerate(missing_steps.tolist()):
        shared = step < embedding.shape[1]
        look_ahead = predicted = None
        if proposal.looks_ahead and shared and not gap and step > 0:
            # The prediction must not know X_t, so it comes from particles that were not selected by it.
            before = population.log_weights
            fresh = model.attention.draw_noise(len(x), population.n_particles, 1, generator).at(0)
            predicted = population.peek(embedding[:, None, step], fresh)[1]
            target = x[:, step + 1, : model.config.n_targets]
            look_ahead = proposal.look_ahead(population, embedding[:, None, step], target)
        selection = population.select(generator, look_ahead)
        trace.ancestors[:, :, step], trace.resampled[:, step] = selection.ancestors, selection.resampled
        trace.prior_log_weights[:, :, step] = population.log_weights if predicted is None else before

        z, parameters = population.mutate(embedding[:, None, step] if shared else population.embed(), noise.at(step))
        trace.log_increments[:, step], drawn = population.absorb(
            parameters, x[:, step + 1], observed[:, step] if gap else None, on_collapse, generator
        )
        trace.parameters[:, :, step] = parameters if predicted is None else predicted
        trace.log_weights[:, :, step] = population.log_weights
        if proposal.draws_again:
            trace.read_outs[:, :, step] = population.read_outs
            noise.attention[:, :, step], z = population.drawn.eps, population.drawn.z
        if trace.completed is not None:
            trace.completed[:, :, step] = drawn
        if trace.attention is not None:
            trace.attention[:, :, step] = z
