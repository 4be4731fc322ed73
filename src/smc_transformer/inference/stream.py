"""Following a stream: one observation at a time, at a constant cost and in constant memory.

    state = model.init_state(batch=1, n_particles=100, generator=0)
    state, info = model.observe(state, x)                 # x: (batch, n_inputs), NaN targets are missing
    info.log_density, info.pit                            # a surprise is visible at once
    model.predictive(state)                               # the distribution of the next observation
    model.forecast(state, horizon=12)                     # joint paths from here

The moves are those of the filter over whole sequences, so the same noise gives the same numbers. With a window, keys
and values live in a ring of that many slots; without one they grow with the stream (as does what a transformer or
whole-past encoder remembers).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.paths import continue_paths
from smc_transformer.inference.population import Population
from smc_transformer.nn.attention import Noise
from smc_transformer.predictive import Mixture
from smc_transformer.smc.weights import effective_sample_size

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


@dataclass(frozen=True)
class StreamInfo:
    """What one observation meant to the model.

    Attributes:
        log_density: log p(X_t | X_{<t}) of what was observed; 0 for the first observation, which nothing predicts.
        pit: P(X_t <= x) of each target under its prediction: near 0 or 1 is a surprise. NaN where nothing was observed.
        ess: effective sample size after the observation.
    """

    log_density: Float[Tensor, "batch"]
    pit: Float[Tensor, "batch n_targets"]
    ess: Float[Tensor, "batch"]


class StreamState:
    """The particles between two observations. `observe` changes it in place.

    Args:
        model: the model.
        batch: number of streams.
        n_particles: particles of each.
        generator: source of randomness.
    """

    def __init__(self, model: "SMCTransformer", batch: int, n_particles: int, generator: Generator | None):
        self.model = model
        self.batch = batch
        self.n_particles = n_particles
        self.generator = generator
        self.population: Population | None = None
        self.parameters: Tensor | None = None

    @property
    def n_observed(self) -> int:
        """How many observations the state has seen, missing ones included."""
        return 0 if self.population is None else self.population.position

    @torch.no_grad()
    def observe(
        self, x: Float[Tensor, "batch n_inputs"], noise: Noise | None = None, on_collapse: str = "error"
    ) -> StreamInfo:
        """Weight the particles by an observation, then move them on to predict the next one."""
        if self.population is None or self.parameters is None:
            self.population = self._begin(x)
            nothing = x.new_full((len(x), self.model.config.n_targets), float("nan"))
            info = StreamInfo(x.new_zeros(len(x)), nothing, x.new_full((len(x),), float(self.n_particles)))
        else:
            info = self._judge(self.population, self.parameters, x, on_collapse)
        self.parameters = self._prepare(self.population, noise)
        return info

    def predictive(self) -> Mixture:
        """The distribution of the next observation, as a mixture with one step."""
        population, parameters = self._prepared()
        return self.model.observation.mixture(population.log_weights.unsqueeze(-1), parameters.unsqueeze(2))

    @torch.no_grad()
    def sample_paths(
        self, future_inputs: Float[Tensor, "batch horizon known"], n_samples: int, generator: Generator | None
    ) -> Float[Tensor, "batch sample horizon n_targets"]:
        """Joint paths from here; the state stays as it is.

        Without a generator, the paths begin with a copy of the state's, which goes on as if they had not been drawn.
        """
        population, parameters = self._prepared()
        if generator is None and self.generator is not None:
            generator = self.generator.clone_state()
        fresh, ends = population.spread(n_samples, future_inputs.shape[1], generator)
        index = ends.unsqueeze(-1).expand(-1, -1, parameters.shape[-1])
        first = self.model.observation.components(parameters.gather(1, index)).sample(generator)
        known = future_inputs[:, None, 0].expand(-1, n_samples, -1)
        fresh.receive(torch.cat((first, known), dim=-1))
        following = continue_paths(fresh, future_inputs[:, 1:], generator)
        return torch.cat((first.unsqueeze(2), following), dim=2)

    def _begin(self, x: Float[Tensor, "batch n_inputs"]) -> Population:
        model = self.model
        encoder_state = model.encoder.start(model.observation.features(x))
        capacity = model.config.window or 16
        return Population(model, x.unsqueeze(1), self.n_particles, capacity, encoder_state)

    def _judge(
        self, population: Population, parameters: Tensor, x: Float[Tensor, "batch n_inputs"], on_collapse: str
    ) -> StreamInfo:
        target = x[:, : self.model.config.n_targets]
        observed = ~target.isnan()
        pit = self.predictive().pit(target.unsqueeze(1), self.generator)[:, 0]
        log_density, _ = population.absorb(
            parameters, x, None if observed.all() else observed, on_collapse, self.generator
        )
        return StreamInfo(log_density, pit, effective_sample_size(population.log_weights))

    def _prepare(self, population: Population, noise: Noise | None) -> Float[Tensor, "batch particle n_parameters"]:
        """Select and mutate: the particles as they predict the next observation."""
        population.select(self.generator)
        if noise is None:
            noise = self.model.attention.draw_noise(self.batch, self.n_particles, 1, self.generator).at(0)
        return population.mutate(population.embed(), noise)[1]

    def _prepared(self) -> tuple[Population, Tensor]:
        if self.population is None or self.parameters is None:
            raise ValueError("nothing has been observed yet: give the first observation to observe()")
        return self.population, self.parameters
