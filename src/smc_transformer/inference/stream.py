"""Following a stream: one observation at a time, at a constant cost and in constant memory.

    state = model.init_state(batch=1, n_particles=100, generator=0)
    state, info = model.observe(state, x)                 # x: (batch, n_inputs), NaN targets are missing
    info.log_density, info.pit                            # a surprise is visible at once
    model.predictive(state)                               # the distribution of the next observation
    model.forecast(state, horizon=12)                     # joint paths from here

The steps are those of the filter over whole sequences, so the same noise gives the same numbers. With a window, keys
and values live in a ring of that many slots; without one they grow with the stream (as does what a transformer or
whole-past encoder remembers).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.paths import continued_paths
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import Prediction, begin, observe_step, predict_step
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise
from smc_transformer.predictive import Mixture
from smc_transformer.smc.weights import effective_sample_size


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
    """The particles between two observations, and their prediction of the next. `observe` changes it in place.

    Args:
        network: the network.
        batch: number of streams.
        settings: of the inference.
        generator: source of randomness.
    """

    def __init__(self, network: Network, batch: int, settings: InferenceSettings, generator: Generator | None):
        self.network = network
        self.batch = batch
        self.settings = settings
        self.generator = generator
        self.particles: ParticleState | None = None
        self.prediction: Prediction | None = None
        self._left: list[tuple[Tensor, int | None]] = []

    @property
    def n_observed(self) -> int:
        """How many observations the state has seen, missing ones included."""
        return 0 if self.particles is None else int(self.particles.position[0])

    @torch.no_grad()
    def observe(
        self, x: Float[Tensor, "batch n_inputs"], noise: Noise | None = None, on_collapse: str = "error"
    ) -> StreamInfo:
        """Weight the particles by an observation, then move them on to predict the next one."""
        if self.particles is None or self.prediction is None:
            self.particles = begin(self.network, x, self.settings.n_particles)
            nothing = x.new_full((len(x), self.network.config.n_targets), float("nan"))
            info = StreamInfo(x.new_zeros(len(x)), nothing, x.new_full((len(x),), float(self.settings.n_particles)))
        else:
            target = x[:, None, : self.network.config.n_targets]
            pit = self.predictive().pit(target, self.generator)[:, 0]
            observed = observe_step(
                self.network,
                self.settings,
                self.particles,
                self.prediction,
                x,
                self.generator,
                on_collapse=on_collapse,
            )
            info = StreamInfo(observed.log_increments, pit, effective_sample_size(self.particles.log_weights))
        self.prediction = predict_step(self.network, self.settings, self.particles, self.generator, noise)
        self._left = _versions(self.particles)
        return info

    def check(self) -> None:
        """That the kernels can follow the particles; nothing to look for while they are as the last step left them."""
        if self.particles is None:
            return
        particles, now = self.particles, _versions(self.particles)
        as_left = len(now) == len(self._left) and all(
            tensor is before and times == times_before
            for (tensor, times), (before, times_before) in zip(now, self._left, strict=True)
        )
        if not as_left or particles.past is not None or particles.held is not None:
            particles.check_places(self.network, self.settings.n_particles)
            if len(particles) != self.batch:
                raise ValueError(f"the particles are those of {len(particles)} streams, but there are {self.batch}")

    def predictive(self) -> Mixture:
        """The distribution of the next observation, as a mixture with one step."""
        _, prediction = self.begun()
        return prediction.mixture(self.network)

    @torch.no_grad()
    def sample_paths(
        self, future_inputs: Float[Tensor, "batch horizon known"], n_samples: int, generator: Generator | None
    ) -> Float[Tensor, "batch sample horizon n_targets"]:
        """Joint paths from here; the state stays as it is.

        Without a generator, the paths begin with a copy of the state's, which goes on as if they had not been drawn.
        """
        particles, prediction = self.begun()
        if generator is None and self.generator is not None:
            generator = self.generator.clone_state()
        return continued_paths(
            self.network, self.settings, particles, future_inputs, n_samples, generator, prediction=prediction
        )

    def begun(self) -> tuple[ParticleState, Prediction]:
        """The particles and their prediction; an error before the first observation."""
        if self.particles is None or self.prediction is None:
            raise ValueError("nothing has been observed yet: give the first observation to observe()")
        return self.particles, self.prediction


def _versions(particles: ParticleState) -> list[tuple[Tensor, int | None]]:
    """The tensors of particles, and how often torch has written into each: what C writes does not count."""
    return [
        (tensor, tensor._version if isinstance(tensor, Tensor) and not tensor.is_inference() else None)
        for tensor in particles.tensors()
    ]
