"""The architecture of an SMC Transformer, and how it learns; how it is inferred is in `inference/settings.py`."""

from dataclasses import dataclass

from smc_transformer.nn.covariance import COVARIANCES
from smc_transformer.nn.encoders import ENCODERS
from smc_transformer.nn.observation import OBSERVATION_MODELS
from smc_transformer.nn.readout import READOUTS
from smc_transformer.support.checks import check_choice, check_count, check_number
from smc_transformer.support.settings import FrozenSettings

LARGEST_SIZE = 2**14
"""Of vectors: features, embeddings, hidden layers, classes."""
MOST_LAYERS = 2**8
MOST_CONVOLUTIONS = 2**4
"""Layers of a convolution, each of which reaches twice as far back as the one before."""
LONGEST_PAST = 2**20
"""Of a window, and of a table of positions."""
MOST_WEIGHTS = 2**31
LARGEST_VARIANCE = 1e15


@dataclass(frozen=True, kw_only=True)
class SMCTransformerConfig(FrozenSettings):
    """The architecture of an SMC Transformer. Frozen, checked when made; the defaults are the library's.

    Attributes:
        n_inputs: features of an observation X_t.
        n_targets: how many of them, the first ones, are predicted; the others are known inputs.
        d_model: size of embeddings, keys, queries, values and attention vectors.
        d_ff: hidden size of the feed-forward nets.
        window: number of past observations attended to; None: all of them.
        n_heads: heads of the stochastic attention (and of the transformer encoder); must divide d_model.
        encoder: what makes embeddings from observations: "linear" (the paper), "transformer", "lstm", "gru" or
            "convolution". A module of one's own is given to `SMCTransformer` itself.
        encoder_layers: layers of the encoder (not for "linear").
        input_changes: give the encoder the changes of the inputs beside the inputs themselves.
        covariance: structure of the latent noises: "isotropic", "diagonal" or "full".
        observation: distribution of X_t: "gaussian" (the paper), "heteroscedastic", "student_t", "zero_inflated"
            (a Student-t that often does not change), "negative_binomial" (counts) or "categorical" (classes). An
            observation model of one's own is given to `SMCTransformer` itself.
        n_classes: number of classes of a categorical distribution.
        observation_covariance: structure of the Gaussian observation noise: "isotropic", "diagonal" or "full".
        predict_change: add the last targets to the read-out, so that the net predicts the change.
        position_encoding: None (the paper), "sinusoidal" or "learned"; for the linear and the transformer encoder
            (the others know the order of their inputs anyway).
        max_positions: length of the table of learned positions.
        readout: "transformer", or "linear" for a model with exact answers.
        initial_latent_variance: initial variance of the latent noises; 0 for a deterministic transformer.
        initial_observation_variance: initial variance of the observation noise.
    """

    n_inputs: int = 1
    n_targets: int = 1
    d_model: int = 32
    d_ff: int = 32
    window: int | None = None
    n_heads: int = 1
    encoder: str = "linear"
    encoder_layers: int = 1
    input_changes: bool = False
    covariance: str = "diagonal"
    observation: str = "gaussian"
    n_classes: int | None = None
    observation_covariance: str = "full"
    predict_change: bool = False
    position_encoding: str | None = None
    max_positions: int = 512
    readout: str = "transformer"
    initial_latent_variance: float = 0.25
    initial_observation_variance: float = 0.5

    def __post_init__(self) -> None:
        self._check_counts("n_inputs", "n_targets", "d_model", "d_ff", "n_heads", at_most=LARGEST_SIZE)
        most_layers = MOST_CONVOLUTIONS if self.encoder == "convolution" else MOST_LAYERS
        self._check_counts("encoder_layers", at_most=most_layers)
        self._check_counts("max_positions", *(() if self.window is None else ("window",)), at_most=LONGEST_PAST)
        if self.n_targets > self.n_inputs:
            raise ValueError(
                f"n_targets must be at most n_inputs (the targets are the first inputs), "
                f"got n_targets={self.n_targets} and n_inputs={self.n_inputs}"
            )
        # About: all matrices of the attention, the encoder's layers and the nets.
        width = self.d_model + self.d_ff + self.n_inputs + (self.n_classes if isinstance(self.n_classes, int) else 0)
        if (8 + 8 * self.encoder_layers) * self.d_model * width > MOST_WEIGHTS:
            raise ValueError(
                f"a model of d_model={self.d_model}, d_ff={self.d_ff}, n_inputs={self.n_inputs} and "
                f"encoder_layers={self.encoder_layers} has more than {MOST_WEIGHTS} weights"
            )
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads must divide d_model={self.d_model}, got {self.n_heads}")
        check_choice(self.encoder, tuple(ENCODERS), "encoder")
        check_choice(self.observation, tuple(OBSERVATION_MODELS), "observation")
        check_choice(self.covariance, tuple(COVARIANCES), "covariance")
        check_choice(self.observation_covariance, tuple(COVARIANCES), "observation_covariance")
        check_choice(self.position_encoding, (None, "sinusoidal", "learned"), "position_encoding")
        check_choice(self.readout, tuple(READOUTS), "readout")
        for name in ("predict_change", "input_changes"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("initial_latent_variance", "initial_observation_variance"):
            self._set(name, check_number(getattr(self, name), name, at_most=LARGEST_VARIANCE))
        if self.initial_observation_variance == 0:
            raise ValueError("initial_observation_variance must be positive: without it no density exists")
        if self.observation != "categorical":
            if self.n_classes is not None:
                raise ValueError(f'n_classes goes with observation="categorical" only, got {self.observation!r}')
            return
        if self.n_classes is None:
            raise ValueError('observation="categorical" needs n_classes')
        self._set("n_classes", check_count(self.n_classes, "n_classes", at_least=2, at_most=LARGEST_SIZE))
        if self.n_targets != 1:
            raise ValueError(f'observation="categorical" has one target, the class number, got {self.n_targets}')
        if self.predict_change:
            raise ValueError("predict_change has no meaning for classes")


@dataclass(frozen=True, kw_only=True)
class LearningSettings(FrozenSettings):
    """How the gradient is estimated, and what it learns.

    Attributes:
        gradient: estimator of the score: "pathwise" or "score" (the paper's formula).
        noise_learning: how the latent covariances are learned: "gradient" or "em" (the paper). The Gaussian
            observation covariance is learned by EM in both cases.
    """

    gradient: str = "pathwise"
    noise_learning: str = "gradient"

    def __post_init__(self) -> None:
        check_choice(self.gradient, ("pathwise", "score"), "gradient")
        check_choice(self.noise_learning, ("gradient", "em"), "noise_learning")
