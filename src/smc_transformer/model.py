"""The SMC Transformer: a transformer whose keys, queries, values and attention vectors are random.

from smc_transformer import SMCTransformer, SMCTransformerConfig

model = SMCTransformer(SMCTransformerConfig(n_inputs=1, n_targets=1))
result = model.filter(x, generator=0)           # x: (batch, time + 1, n_inputs)
result.predictive.interval(0.95)                # of X_1, ..., X_T, each given the past
model.forecast(x, horizon=12, generator=0)      # joint paths of the future
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.checks import check_choice, check_count, check_sequences
from smc_transformer.config import SMCTransformerConfig
from smc_transformer.filtering import ON_COLLAPSE, FilterResult, particle_filter
from smc_transformer.forecasting import sample_paths
from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.nn.covariance import Covariance
from smc_transformer.nn.encoder import LinearEncoder
from smc_transformer.nn.observation import GaussianObservation
from smc_transformer.nn.readout import LinearReadout, TransformerReadout
from smc_transformer.randomness import as_generator
from smc_transformer.replay import Replay, replay


class SMCTransformer(nn.Module):
    """A generative model of sequences, with latent self-attention inferred by a particle filter.

    Attributes:
        config: its settings.
        encoder: observations to embeddings e_s (`encoder.projection`).
        attention: `query`, `key`, `value` and `output` projections without bias, and the covariances of their
            noises: `query_covariance`, `key_covariance`, `value_covariance` and `attention_covariance`.
        readout: attention vector and last embedding to the mean of X_t (`readout.projection`, ...).
        observation: the law of X_t around that mean (`observation.covariance`).

    Args:
        config: settings.
        generator: a generator or seed for the initial weights; None uses torch's default generator.
    """

    def __init__(self, config: SMCTransformerConfig, generator: Generator | int | None = None):
        super().__init__()
        self.config = config
        self.encoder = LinearEncoder(config.n_inputs, config.d_model, config.position_encoding, config.max_positions)
        self.attention = StochasticSelfAttention(
            config.d_model,
            config.window,
            config.covariance,
            config.initial_latent_variance,
            learn_by_gradient=config.noise_learning == "gradient",
        )
        self.readout: TransformerReadout | LinearReadout
        if config.readout == "transformer":
            self.readout = TransformerReadout(config.d_model, config.d_ff, config.n_targets)
        else:
            self.readout = LinearReadout(config.d_model, config.n_targets)
        self.observation = GaussianObservation(
            config.n_targets, config.observation_covariance, config.initial_observation_variance
        )
        self.initialise_weights(generator)

    @torch.no_grad()
    def initialise_weights(self, generator: Generator | int | None = None) -> None:
        """Draw all linear maps anew, uniform within 1 / sqrt(fan in)."""
        generator = as_generator(generator)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                nn.init.uniform_(module.weight, -bound, bound, generator=generator)
                if module.bias is not None:
                    nn.init.uniform_(module.bias, -bound, bound, generator=generator)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return self.encoder.projection.weight.dtype

    def latent_covariances(self) -> dict[str, Covariance]:
        """The covariances of the latent noises, by the name of the noise."""
        return {
            "query": self.attention.query_covariance,
            "key": self.attention.key_covariance,
            "value": self.attention.value_covariance,
            "attention": self.attention.attention_covariance,
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
            x: X_0, ..., X_T for each sequence; the first `n_targets` features are predicted from t = 1 on.
            n_particles: number of particles; None: `config.n_particles`.
            generator: a generator or seed; None uses torch's default generator.
            on_collapse: what to do when no particle can explain an observation: "error" raises a
                `WeightCollapseError` that names sequence and step; "uniform" goes on with equal weights and
                counts the likelihood of that observation as zero.

        Returns:
            Likelihood, weights, genealogy, diagnostics and one-step predictive distributions.
        """
        x = check_sequences(x, self.config.n_inputs, self.dtype, min_time=2)
        n_particles = check_count(self.config.n_particles if n_particles is None else n_particles, "n_particles")
        check_choice(on_collapse, ON_COLLAPSE, "on_collapse")
        return particle_filter(self, x, n_particles, as_generator(generator, x.device), on_collapse=on_collapse)

    def replay(self, x: Float[Tensor, "batch time_plus_1 n_inputs"], noise: Noise) -> Replay:
        """Rebuild the latents, means and densities that given noise makes, in parallel and with gradients.

        Args:
            x: the sequences that were filtered.
            noise: noise of each line, (batch, line, time, d_model): the filter's, gathered along lines.
        """
        x = check_sequences(x, self.config.n_inputs, self.dtype, min_time=2)
        for name, eps in noise._asdict().items():
            if eps.ndim != 4 or (eps.shape[0], *eps.shape[2:]) != (
                len(x),
                x.shape[1] - 1,
                self.config.d_model,
            ):
                raise ValueError(
                    f"the {name} noise must have shape (batch={len(x)}, line, time={x.shape[1] - 1}, "
                    f"d_model={self.config.d_model}), got {tuple(eps.shape)}"
                )
        return replay(self, x, noise)

    def forecast(
        self,
        history: Float[Tensor, "batch past n_inputs"],
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
            history: X_0, ..., X_H for each sequence.
            horizon: number of steps ahead.
            n_samples: number of paths for each sequence.
            future_inputs: the inputs that are not targets at the steps of the horizon (the last is not used);
                needed when there are any.
            generator: a generator or seed; None uses torch's default generator.
            n_particles: particles that filter the history; None: `config.n_particles`.
            on_collapse: what to do when no particle can explain the history, as in `filter`.

        Returns:
            Paths whose steps and targets belong together: path i is one possible future.
        """
        history = check_sequences(history, self.config.n_inputs, self.dtype, min_time=1, name="history")
        check_count(horizon, "horizon")
        check_count(n_samples, "n_samples")
        n_particles = check_count(self.config.n_particles if n_particles is None else n_particles, "n_particles")
        check_choice(on_collapse, ON_COLLAPSE, "on_collapse")
        return sample_paths(
            self,
            history,
            self._check_future_inputs(future_inputs, history, horizon),
            n_samples=n_samples,
            n_particles=n_particles,
            on_collapse=on_collapse,
            generator=as_generator(generator, history.device),
        )

    def split(
        self, x: Float[Tensor, "batch time_plus_1 n_inputs"]
    ) -> tuple[
        Float[Tensor, "batch time n_inputs"],
        Float[Tensor, "batch 1 time n_targets"],
        Float[Tensor, "batch 1 time n_targets"],
    ]:
        """Inputs X_{t-1}, their targets and the targets X_t; the last two with an axis for particles."""
        targets = x[:, None, :, : self.config.n_targets]
        return x[:, :-1], targets[:, :, :-1], targets[:, :, 1:]

    def read_out(
        self,
        attention: Float[Tensor, "*batch d_model"],
        embedding: Float[Tensor, "*#batch d_model"],
        last_targets: Float[Tensor, "*#batch n_targets"],
    ) -> Float[Tensor, "*batch n_targets"]:
        """The mean of X_t, from z(t), e_{t-1} and the targets of X_{t-1}."""
        mean: Tensor = self.readout(attention, embedding)
        return mean + last_targets if self.config.predict_change else mean

    def _check_future_inputs(self, future_inputs: Tensor | None, history: Tensor, horizon: int) -> Tensor:
        n_known = self.config.n_inputs - self.config.n_targets
        if future_inputs is None:
            if n_known and horizon > 1:
                raise ValueError(
                    f"{n_known} of the {self.config.n_inputs} inputs are not targets: a forecast of {horizon} "
                    f"steps needs their values as future_inputs of shape ({len(history)}, {horizon}, {n_known})"
                )
            return history.new_zeros(len(history), horizon, n_known)
        expected = (len(history), horizon, n_known)
        if isinstance(future_inputs, Tensor) and tuple(future_inputs.shape) != expected:
            raise ValueError(f"future_inputs must have shape {expected}, got {tuple(future_inputs.shape)}")
        return check_sequences(future_inputs, n_known, self.dtype, min_time=1, name="future_inputs")
