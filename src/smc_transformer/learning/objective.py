"""Two objectives whose gradient, averaged over smoothing lines, is the score (Fisher's identity).

    grad log p(X) = E[ grad log p(latents, X) | X ]

Both are functions of the noise of given lines, and return one number for each line and step. Lines, their weights
and observations that were drawn in place of missing ones are constants in the gradient.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.inference.replay import LineInputs, replay
from smc_transformer.kernels.replay import replay_read_outs
from smc_transformer.nn.attention import Noise

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class LineObjective(NamedTuple):
    """An objective along lines, and the parameters of the law of X_t, which EM needs too."""

    log_density: Float[Tensor, "batch line time"]
    parameters: Float[Tensor, "batch line time n_parameters"]


@runtime_checkable
class Objective(Protocol):
    """What both objectives look like."""

    def __call__(
        self,
        model: "SMCTransformer",
        inputs: LineInputs,
        noise: Noise,
        lines: Int[Tensor, "batch line time"],
        read_outs: Float[Tensor, "batch line time n_parameters"] | None,
    ) -> LineObjective:
        """The objective along lines.

        Args:
            model: the model.
            inputs: what the lines see.
            noise: the noise of all particles.
            lines: the particle that each line passes through at each step.
            read_outs: the parameters of the law of X_t that the filter found along the lines; None if it has not
                been through them.
        """
        ...


def pathwise_objective(
    model: "SMCTransformer",
    inputs: LineInputs,
    noise: Noise,
    lines: Int[Tensor, "batch line time"],
    read_outs: Float[Tensor, "batch line time n_parameters"] | None,
) -> LineObjective:
    """Log p(X_t | eps), with the standard noise eps as the latent (the default).

    eps has a law without parameters, so log p(eps, X) = log p(eps) + sum_t log p(X_t | eps), and only the
    second term has a gradient, which flows through q, k, v and z. Little variance when the noises are small.
    """
    parameters = replay_read_outs(model, inputs, noise, lines, read_outs)
    if parameters is None:
        parameters = replay(model, inputs, noise, lines).parameters
    return LineObjective(model.observation.components(parameters).log_prob(inputs.targets), parameters)


def score_objective(
    model: "SMCTransformer",
    inputs: LineInputs,
    noise: Noise,
    lines: Int[Tensor, "batch line time"],
    read_outs: Float[Tensor, "batch line time n_parameters"] | None,
) -> LineObjective:
    """Log p(q, k, v, z, X), with the latents as fixed numbers (the paper's formula).

    log N(q; Wq e, Sq) + log N(k; Wk e, Sk) + log N(v; Wv e, Sv) + log N(z; mean(q, k, v), Sz) + log p(X_t | z).
    """
    del read_outs  # here the parameters of the law depend on z alone, and have to be computed from it
    attention = model.attention
    for name, covariance in model.latent_covariances().items():
        if covariance.is_zero:
            raise ValueError(
                f'gradient="score" needs a density of the {name} noise, but its covariance is zero; '
                'use gradient="pathwise"'
            )
    means = attention.means(inputs.embedding)
    with torch.no_grad():
        latents = attention.latents(inputs.embedding, noise, lines)
    attention_mean = attention.attend_all(latents)
    z = (attention_mean + attention.deviation(noise, lines)).detach()
    parameters = model.read_out(z, inputs.embedding, inputs.last_targets)
    log_density = (
        attention.query_covariance.log_density(latents.query - means.query)
        + attention.key_covariance.log_density(latents.key - means.key)
        + attention.value_covariance.log_density(latents.value - means.value)
        + attention.attention_covariance.log_density(z - attention_mean)
        + model.observation.components(parameters).log_prob(inputs.targets)
    )
    return LineObjective(log_density, parameters)


OBJECTIVES: dict[str, Objective] = {"pathwise": pathwise_objective, "score": score_objective}
