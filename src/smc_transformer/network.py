"""The network below the inference: encoder, stochastic attention, read-out, observation model, and their weights.

    e_s = encoder(X_0, ..., X_s)
    z(t) = attention(e_0, ..., e_{t-1}, noise)
    X_t ~ observation(readout(z(t), e_{t-1}))

It knows how a particle's latents become a distribution of X_t, and nothing of particles: `inference/` filters it.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from smc_transformer.config import SMCTransformerConfig
from smc_transformer.nn.attention import Noise, StochasticSelfAttention
from smc_transformer.nn.covariance import Covariance
from smc_transformer.nn.encoders import CausalEncoder, EncoderSettings, as_encoder, make_encoder
from smc_transformer.nn.initialisation import initialise_weights
from smc_transformer.nn.observation import OBSERVATION_MODELS, ObservationModel, ObservationSettings
from smc_transformer.nn.readout import READOUTS
from smc_transformer.support.checks import check_sequences
from smc_transformer.support.randomness import as_generator


class Network(nn.Module):
    """A generative model of sequences whose self-attention is latent.

    The initial weights are drawn by a generator or seed; None uses torch's default generator. An `encoder` or an
    `observation` model of one's own is used instead of the one that the config names. Such an encoder is a causal
    module, (batch, time, features) to (batch, time, d_model), and its weights are left as they are.

    Attributes:
        config: its architecture.
        encoder: observations to embeddings e_s.
        attention: `query`, `key`, `value` and `output` projections without bias, and the covariances of their
            noises: `query_covariance`, `key_covariance`, `value_covariance` and `attention_covariance`.
        readout: attention vector and last embedding to the parameters of p(X_t | z) (`readout.projection`, ...).
        observation: that distribution (for a Gaussian, `observation.covariance`).
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
            self.observation: ObservationModel = make_observation(config) if observation is None else observation
            if self.observation.n_targets != config.n_targets:
                raise ValueError(
                    f"the observation model must have n_targets={config.n_targets}, got {self.observation.n_targets}"
                )
            if config.predict_change and not self.observation.can_shift:
                raise ValueError(f"predict_change has no meaning for {type(self.observation).__name__}")
            if self.observation.needs_shift and not config.predict_change:
                raise ValueError(f"{type(self.observation).__name__} needs predict_change=True")
            self.encoder: CausalEncoder = (
                _own_encoder(config, self.observation) if encoder is None else as_encoder(encoder)
            )
            self.attention = StochasticSelfAttention(
                config.d_model, config.window, config.covariance, config.initial_latent_variance, config.n_heads
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

    def read_out(
        self,
        attention: Float[Tensor, "*batch d_model"],
        embedding: Float[Tensor, "*#batch d_model"],
        last_targets: Float[Tensor, "*#batch n_targets"],
        outputs: Float[Tensor, "*batch n_parameters"] | None = None,
    ) -> Float[Tensor, "*batch n_parameters"]:
        """The parameters of p(X_t | z), from z(t), e_{t-1} and the targets of X_{t-1}.

        `outputs` of the read-out net can be given where they are known already.
        """
        parameters: Tensor = self.readout(attention, embedding) if outputs is None else outputs
        return self.observation.shift(parameters, last_targets) if self.config.predict_change else parameters

    def check(self, x: Any, *, min_time: int, name: str = "x") -> Tensor:
        """Sequences that this network can read, or an error that says what is wrong with them."""
        config = self.config
        x = check_sequences(x, config.n_inputs, self.dtype, min_time=min_time, n_targets=config.n_targets, name=name)
        self.observation.check(x, name)
        if x.device != (own := self.attention.query.weight.device):
            hint = "which holds no numbers" if own.type == "meta" else "move one of them"
            raise ValueError(f"{name} is on the device {str(x.device)!r}, the model on {str(own)!r}: {hint}")
        return x


def make_observation(config: SMCTransformerConfig) -> ObservationModel:
    """The observation model that a config names."""
    settings = {name: getattr(config, name) for name in ObservationSettings._fields}
    return OBSERVATION_MODELS[config.observation](ObservationSettings(**settings))


def _own_encoder(config: SMCTransformerConfig, observation: ObservationModel) -> CausalEncoder:
    shared = (name for name in EncoderSettings._fields if name != "n_features")
    settings = EncoderSettings(
        n_features=observation.n_features(config.n_inputs), **{name: getattr(config, name) for name in shared}
    )
    return make_encoder(config.encoder, settings, input_changes=config.input_changes)
