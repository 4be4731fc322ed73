"""The SMC Transformer: a transformer whose keys, queries, values and attention vectors are random.

from smc_transformer import SMCTransformer, SMCTransformerConfig

model = SMCTransformer(SMCTransformerConfig(n_inputs=1, n_targets=1))
result = model.filter(x, generator=0)           # x: (batch, time + 1, n_inputs), NaN targets are missing
result.predictive.interval(0.95)                # of X_1, ..., X_T, each given the past
model.forecast(x, horizon=12, generator=0)      # joint paths of the future
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.config import LearningSettings, SMCTransformerConfig
from smc_transformer.inference.filter import ON_COLLAPSE, FilterResult, particle_filter
from smc_transformer.inference.paths import sample_paths
from smc_transformer.inference.replay import Replay, replay, trajectory_inputs
from smc_transformer.inference.settings import LONGEST_FORECAST, InferenceSettings
from smc_transformer.inference.stream import StreamInfo, StreamState
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise
from smc_transformer.predictive import Mixture
from smc_transformer.support.checks import check_choice, check_count, check_sequences
from smc_transformer.support.randomness import as_generator
from smc_transformer.support.settings import check_names


class SMCTransformer(Network):
    """A network with latent self-attention, inferred by a particle filter.

    Its architecture (`config`) is fixed by its weights. How it is inferred (`inference`) and how it learns (`learning`)
    are settings beside it, the defaults unless given, which may be replaced at any time, as in
    `model.inference = replace(model.inference, resampling="residual")`. The `generator` of the initial weights and the
    `parts`, an `encoder` or an `observation` model of one's own, are those of `Network`.

    The calls share their options. `n_particles` and `inference` are used instead of the model's settings.
    `generator` is a generator or a seed; None uses torch's default generator. The same seed gives the same numbers on
    the same machine and settings, but with the kernels others than without them, of the same distribution: float32
    noise is then drawn by all threads from a counter-based generator (Threefry), which torch does not have.
    `on_collapse` says what to do when no particle can explain an observation: "error" raises a `WeightCollapseError`
    that names sequence and step; "uniform" goes on with equal weights and counts the likelihood of that observation as
    zero.
    """

    def __init__(
        self,
        config: SMCTransformerConfig,
        generator: Generator | int | None = None,
        *,
        inference: InferenceSettings | None = None,
        learning: LearningSettings | None = None,
        **parts: Any,
    ):
        super().__init__(config, generator, **parts)
        self.inference = inference or InferenceSettings()
        self.learning = learning or LearningSettings()

    @classmethod
    def from_settings(
        cls, settings: Mapping[str, Any], generator: Generator | int | None = None, **parts: Any
    ) -> "SMCTransformer":
        """A model from one dictionary of architecture, inference and learning; `parts` as in the constructor."""
        config, inference, learning = split_settings(settings)
        return cls(config, generator, inference=inference, learning=learning, **parts)

    @property
    def learning(self) -> LearningSettings:
        """How gradients are estimated, and what they learn."""
        return self._learning

    @learning.setter
    def learning(self, learning: LearningSettings) -> None:
        if learning.gradient == "score" and self.config.initial_latent_variance == 0:
            raise ValueError(
                'gradient="score" differentiates the density of the latents, which does not exist at '
                'initial_latent_variance=0; use gradient="pathwise"'
            )
        self._learning = learning
        for covariance in self.attention.covariances:
            covariance.learn_by_gradient_(learning.noise_learning == "gradient")

    def filter(
        self,
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        n_particles: int | None = None,
        generator: Generator | int | None = None,
        *,
        inference: InferenceSettings | None = None,
        on_collapse: str = "error",
    ) -> FilterResult:
        """Run the particle filter over whole sequences, without gradients.

        Of X_0, ..., X_T, the first `n_targets` features are predicted from t = 1 on. Targets may be missing (NaN),
        wholly or partly, but not those of X_0.

        Returns:
            Likelihood, weights, genealogy, diagnostics and one-step predictive distributions.
        """
        x = self.check(x, min_time=2)
        check_choice(on_collapse, ON_COLLAPSE, "on_collapse")
        settings, generator = self.settings(n_particles, inference), as_generator(generator, x.device)
        return particle_filter(self, x, settings, generator, on_collapse=on_collapse, keep_attention=True)

    def replay(
        self,
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        noise: Noise,
        completed: Float[Tensor, "batch trajectory time n_targets"] | None = None,
    ) -> Replay:
        """Rebuild the latents, parameters and densities that given noise makes, in parallel and with gradients.

        The noise is that of each trajectory, the filter's `noise.along(trajectories)`. Where values are missing,
        `completed` are the targets as each trajectory completed them: the filter's, gathered along trajectories.
        """
        x = self.check(x, min_time=2)
        expected = (len(x), x.shape[1] - 1, self.config.d_model)
        for name, eps in noise._asdict().items():
            if eps.ndim != 4 or (eps.shape[0], *eps.shape[2:]) != expected:
                raise ValueError(
                    f"the {name} noise must have shape (batch={len(x)}, trajectory, time={expected[1]}, "
                    f"d_model={expected[2]}), got {tuple(eps.shape)}"
                )
        if completed is None and x.isnan().any():
            raise ValueError("x has missing values: replay needs the targets as completed by each trajectory")
        return replay(self, trajectory_inputs(self, x, completed), noise)

    def init_state(
        self,
        batch: int = 1,
        n_particles: int | None = None,
        generator: Generator | int | None = None,
        *,
        inference: InferenceSettings | None = None,
    ) -> StreamState:
        """The state of so many streams that have not begun; see `smc_transformer.inference.stream`."""
        batch = check_count(batch, "batch")
        generator = as_generator(generator, self.attention.query.weight.device)
        return StreamState(self, batch, self.settings(n_particles, inference), generator)

    def observe(
        self, state: StreamState, x: Float[Tensor, "batch n_inputs"], *, on_collapse: str = "error"
    ) -> tuple[StreamState, StreamInfo]:
        """Give each stream its next observation, whose targets may be missing (NaN) after the first.

        Returns:
            The state, which is changed in place, and what the observation meant: log density, PIT, effective sample
            size.
        """
        self._check_state(state)
        check_choice(on_collapse, ON_COLLAPSE, "on_collapse")
        expected = (state.batch, self.config.n_inputs)
        if isinstance(x, Tensor) and tuple(x.shape) != expected:
            raise ValueError(f"x must have shape (batch, n_inputs) = {expected}, got {tuple(x.shape)}")
        before = x if state.n_observed == 0 or not isinstance(x, Tensor) else torch.zeros_like(x)
        self.check(torch.stack((before, x), dim=1) if isinstance(x, Tensor) else x, min_time=1)
        return state, state.observe(x, on_collapse=on_collapse)

    def predictive(self, state: StreamState) -> Mixture:
        """The distribution of the next observation of each stream, (batch, 1, target)."""
        self._check_state(state)
        return state.predictive()

    def forecast(
        self,
        history: Float[Tensor, "batch past n_inputs"] | StreamState,
        horizon: int,
        n_samples: int = 1000,
        future_inputs: Float[Tensor, "batch horizon known"] | None = None,
        generator: Generator | int | None = None,
        *,
        n_particles: int | None = None,
        inference: InferenceSettings | None = None,
        on_collapse: str = "error",
    ) -> Float[Tensor, "batch sample horizon n_targets"]:
        """Sample joint paths of the targets after a history, or after what streams have observed.

        The targets of X_0, ..., X_H may be missing (NaN) after X_0. Every path descends from one of the particles that
        filter them, so more particles mean more different pasts; streams keep the inference that they began with.
        `future_inputs` are the inputs that are not targets at the steps of the horizon, needed when there are any (the
        last is not used).

        Returns:
            Paths whose steps and targets belong together: path i is one possible future.
        """
        check_choice(on_collapse, ON_COLLAPSE, "on_collapse")
        horizon = check_count(horizon, "horizon", at_most=LONGEST_FORECAST)
        n_samples = check_count(n_samples, "n_samples")
        if isinstance(history, StreamState):
            self._check_state(history)
            if n_particles is not None or inference is not None:
                raise ValueError("the number of particles and the inference of a stream are set by init_state")
            known = self._check_future_inputs(future_inputs, history.batch, horizon)
            return history.sample_paths(known, n_samples, as_generator(generator, known.device))
        history = self.check(history, min_time=1, name="history")
        known = self._check_future_inputs(future_inputs, len(history), horizon)
        settings, generator = self.settings(n_particles, inference), as_generator(generator, history.device)
        return sample_paths(
            self, settings, history, known, n_samples=n_samples, on_collapse=on_collapse, generator=generator
        )

    def settings(self, n_particles: int | None = None, inference: InferenceSettings | None = None) -> InferenceSettings:
        """The settings of an inference: the model's or others, with another number of particles if one is given."""
        return (inference or self.inference).with_particles(n_particles)

    def _check_state(self, state: StreamState) -> None:
        if not isinstance(state, StreamState):
            raise TypeError(f"state must be a StreamState, as init_state makes it, got {type(state).__name__}")
        if state.network is not self:
            raise ValueError("the state belongs to another model: states come from init_state")
        state.check()

    def _check_future_inputs(self, future_inputs: Tensor | None, batch: int, horizon: int) -> Tensor:
        n_known = self.config.n_inputs - self.config.n_targets
        expected = (batch, horizon, n_known)
        if future_inputs is None:
            if n_known and horizon > 1:
                raise ValueError(
                    f"{n_known} of the {self.config.n_inputs} inputs are not targets: a forecast of {horizon} "
                    f"steps needs their values as future_inputs of shape {expected}"
                )
            return self.attention.query.weight.new_zeros(expected)
        if isinstance(future_inputs, Tensor) and tuple(future_inputs.shape) != expected:
            raise ValueError(f"future_inputs must have shape {expected}, got {tuple(future_inputs.shape)}")
        return check_sequences(future_inputs, n_known, self.dtype, min_time=1, name="future_inputs")


def split_settings(settings: Mapping[str, Any]) -> tuple[SMCTransformerConfig, InferenceSettings, LearningSettings]:
    """Architecture, inference and learning from one dictionary, as older versions kept them; the rest by default."""
    kinds = (SMCTransformerConfig, InferenceSettings, LearningSettings)
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings must be a dictionary, got {type(settings).__name__}")
    known = set().union(*(kind.names() for kind in kinds))
    check_names(settings, known)
    config, inference, learning = ({name: settings[name] for name in kind.names() & set(settings)} for kind in kinds)
    return SMCTransformerConfig(**config), InferenceSettings(**inference), LearningSettings(**learning)
