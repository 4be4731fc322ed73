"""The SMC Transformer: a transformer whose keys, queries, values and attention vectors are random.

from smc_transformer import SMCTransformer, SMCTransformerConfig

model = SMCTransformer(SMCTransformerConfig(n_inputs=1, n_targets=1))
result = model.filter(x, generator=0)           # x: (batch, time + 1, n_inputs), NaN targets are missing
result.predictive.interval(0.95)                # of X_1, ..., X_T, each given the past
model.forecast(x, horizon=12, generator=0)      # joint paths of the future
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.config import SMCTransformerConfig
from smc_transformer.inference.filter import ON_COLLAPSE, FilterResult, particle_filter
from smc_transformer.inference.paths import sample_paths
from smc_transformer.inference.replay import Replay, replay, trajectory_inputs
from smc_transformer.inference.stream import StreamInfo, StreamState
from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.nn.covariance import Covariance
from smc_transformer.nn.encoders import CausalEncoder, as_encoder
from smc_transformer.nn.encoders.registry import make_encoder
from smc_transformer.nn.initialisation import initialise_weights
from smc_transformer.nn.observation import ObservationModel
from smc_transformer.nn.observation.registry import OBSERVATION_MODELS
from smc_transformer.nn.readout import READOUTS
from smc_transformer.predictive import Mixture
from smc_transformer.support.checks import check_choice, check_count, check_sequences
from smc_transformer.support.randomness import as_generator


class SMCTransformer(nn.Module):
    """A generative model of sequences, with latent self-attention inferred by a particle filter.

    Attributes:
        config: its settings.
        encoder: observations to embeddings e_s.
        attention: `query`, `key`, `value` and `output` projections without bias, and the covariances of their
            noises: `query_covariance`, `key_covariance`, `value_covariance` and `attention_covariance`.
        readout: attention vector and last embedding to the parameters of p(X_t | z) (`readout.projection`,
            ...).
        observation: that distribution (for a Gaussian, `observation.covariance`).

    Args:
        config: settings.
        generator: a generator or seed for the initial weights; None uses torch's default generator.
        encoder: a causal module of one's own, (batch, time, features) to (batch, time, d_model), instead of the one
            that the settings name; its weights are left as they are.
        observation: an observation model of one's own, instead of the one that the settings name.
    """

    def __init__(
        self,
        config: SMCTransformerConfig,
        generator: Generator | int | None = None,
        *,
        encoder: nn.Module | None = None,
        observation: ObservationModel | None = None,
    ):
        super().__init__()
        self.config = config
        generator = as_generator(generator)
        with torch.random.fork_rng(devices=[], enabled=generator is not None):  # torch's own first draws leave no trace
            self.observation: ObservationModel = (
                OBSERVATION_MODELS[config.observation](config) if observation is None else observation
            )
            if self.observation.n_targets != config.n_targets:
                raise ValueError(
                    f"the observation model must have n_targets={config.n_targets}, got {self.observation.n_targets}"
                )
            if config.predict_change and not self.observation.can_shift:
                raise ValueError(f"predict_change has no meaning for {type(self.observation).__name__}")
            n_features = self.observation.n_features(config.n_inputs)
            self.encoder: CausalEncoder = make_encoder(config, n_features) if encoder is None else as_encoder(encoder)
            self.attention = StochasticSelfAttention(
                config.d_model,
                config.window,
                config.covariance,
                config.initial_latent_variance,
                config.n_heads,
                learn_by_gradient=config.noise_learning == "gradient",
            )
            self.readout = READOUTS[config.readout](config.d_model, config.d_ff, self.observation.n_parameters)
        own = (self.attention, self.readout) if encoder is not None else (self.encoder, self.attention, self.readout)
        for part in own:
            initialise_weights(part, generator)
        with torch.no_grad():
            self.readout.projection.bias.add_(self.observation.initial_parameters())
        self.eval()  # a model is for use until a trainer says otherwise

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return self.attention.query.weight.dtype

    def latent_covariances(self) -> dict[str, Covariance]:
        """The covariances of the latent noises, by the name of the noise."""
        return dict(zip(Noise._fields, self.attention.covariances, strict=True))

    def gradient_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that gradients learn: not those of EM, nor covariances that are switched off."""
        by_em = {id(part.factor) for part in self.modules() if isinstance(part, Covariance) and not part.by_gradient}
        return {
            name: parameter
            for name, parameter in self.named_parameters()
            if parameter.requires_grad and id(parameter) not in by_em
        }

    def filter(
        self,
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        n_particles: int | None = None,
        generator: Generator | int | None = None,
        *,
        on_collapse: str = "error",
    ) -> FilterResult:
        """Run the particle filter over whole sequences, without gradients.

        Args:
            x: X_0, ..., X_T for each sequence; the first `n_targets` features are predicted from t = 1 on. Targets
                may be missing (NaN), wholly or partly, but not those of X_0.
            n_particles: number of particles; None: `config.n_particles`.
            generator: a generator or seed; None uses torch's default generator.
            on_collapse: what to do when no particle can explain an observation: "error" raises a
                `WeightCollapseError` that names sequence and step; "uniform" goes on with equal weights and
                counts the likelihood of that observation as zero.

        Returns:
            Likelihood, weights, genealogy, diagnostics and one-step predictive distributions.
        """
        x = self.check(x, min_time=2)
        n_particles = self._particles(n_particles)
        check_choice(on_collapse, ON_COLLAPSE, "on_collapse")
        generator = as_generator(generator, x.device)
        return particle_filter(self, x, n_particles, generator, on_collapse=on_collapse, keep_attention=True)

    def replay(
        self,
        x: Float[Tensor, "batch time_plus_1 n_inputs"],
        noise: Noise,
        completed: Float[Tensor, "batch trajectory time n_targets"] | None = None,
    ) -> Replay:
        """Rebuild the latents, parameters and densities that given noise makes, in parallel and with gradients.

        Args:
            x: the sequences that were filtered.
            noise: noise of each trajectory, (batch, trajectory, time, d_model): the filter's,
                `noise.along(trajectories)`.
            completed: where values are missing, the targets as each trajectory completed them: the filter's
                `completed`, gathered along trajectories.
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
        self, batch: int = 1, n_particles: int | None = None, generator: Generator | int | None = None
    ) -> StreamState:
        """The state of streams that have not begun; see `smc_transformer.inference.stream`.

        Args:
            batch: number of streams.
            n_particles: particles of each; None: `config.n_particles`.
            generator: a generator or seed; None uses torch's default generator.
        """
        batch = check_count(batch, "batch")
        generator = as_generator(generator, self.attention.query.weight.device)
        return StreamState(self, batch, self._particles(n_particles), generator)

    def observe(
        self, state: StreamState, x: Float[Tensor, "batch n_inputs"], *, on_collapse: str = "error"
    ) -> tuple[StreamState, StreamInfo]:
        """Give streams their next observation.

        Args:
            state: the state so far; changed in place, and returned.
            x: one observation for each stream; targets may be missing (NaN) after the first observation.
            on_collapse: what to do when no particle can explain the observation, as in `filter`.

        Returns:
            The state, and what the observation meant: log density, PIT, effective sample size.
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
        on_collapse: str = "error",
    ) -> Float[Tensor, "batch sample horizon n_targets"]:
        """Sample joint paths of the targets after the history.

        Args:
            history: X_0, ..., X_H for each sequence; targets may be missing (NaN) after X_0. Or the state of streams.
            horizon: number of steps ahead.
            n_samples: number of paths for each sequence.
            future_inputs: the inputs that are not targets at the steps of the horizon (the last is not used);
                needed when there are any.
            generator: a generator or seed; None uses torch's default generator.
            n_particles: particles that filter the history; None: `config.n_particles`. Every path descends from
                one of them, so more of them mean more different pasts.
            on_collapse: what to do when no particle can explain the history, as in `filter`.

        Returns:
            Paths whose steps and targets belong together: path i is one possible future.
        """
        check_choice(on_collapse, ON_COLLAPSE, "on_collapse")
        horizon, n_samples = check_count(horizon, "horizon"), check_count(n_samples, "n_samples")
        if isinstance(history, StreamState):
            self._check_state(history)
            if n_particles is not None:
                raise ValueError("the number of particles of a stream is set by init_state")
            known = self._check_future_inputs(future_inputs, history.batch, horizon)
            return history.sample_paths(known, n_samples, as_generator(generator, known.device))
        history = self.check(history, min_time=1, name="history")
        return sample_paths(
            self,
            history,
            self._check_future_inputs(future_inputs, len(history), horizon),
            n_samples=n_samples,
            n_particles=self._particles(n_particles),
            on_collapse=on_collapse,
            generator=as_generator(generator, history.device),
        )

    def read_out(
        self,
        attention: Float[Tensor, "*batch d_model"],
        embedding: Float[Tensor, "*#batch d_model"],
        last_targets: Float[Tensor, "*#batch n_targets"],
        outputs: Float[Tensor, "*batch n_parameters"] | None = None,
    ) -> Float[Tensor, "*batch n_parameters"]:
        """The parameters of the distribution of X_t, from z(t), e_{t-1} and the targets of X_{t-1}.

        `outputs` of the read-out net can be given where they are known already.
        """
        parameters: Tensor = self.readout(attention, embedding) if outputs is None else outputs
        return self.observation.shift(parameters, last_targets) if self.config.predict_change else parameters

    def check(self, x: Any, *, min_time: int, name: str = "x") -> Tensor:
        """Sequences that this model can read, or an error that says what is wrong with them."""
        config = self.config
        x = check_sequences(x, config.n_inputs, self.dtype, min_time=min_time, n_targets=config.n_targets, name=name)
        self.observation.check(x, name)
        return x

    def _check_state(self, state: StreamState) -> None:
        if state.model is not self:
            raise ValueError("the state belongs to another model: states come from init_state")

    def _particles(self, n_particles: int | None) -> int:
        return self.config.n_particles if n_particles is None else check_count(n_particles, "n_particles")

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
