"""Two objectives whose gradient, averaged over smoothing trajectories, is the score (Fisher's identity).

    grad log p(X) = E[ grad log p(latents, X) | X ]

Both are functions of the noise of given trajectories, and return one number for each trajectory and step. Trajectories,
their weights and observations that were drawn in place of missing ones are constants in the gradient.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.inference import engine
from smc_transformer.inference.replay import TrajectoryInputs, replay
from smc_transformer.nn.attention import Noise

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class TrajectoryObjective(NamedTuple):
    """An objective along trajectories, and the parameters of p(X_t | z), which EM needs too."""

    log_density: Float[Tensor, "batch trajectory time"]
    parameters: Float[Tensor, "batch trajectory time n_parameters"]


@runtime_checkable
class Objective(Protocol):
    """What both objectives look like."""

    def __call__(
        self,
        model: "SMCTransformer",
        inputs: TrajectoryInputs,
        noise: Noise,
        trajectories: Int[Tensor, "batch trajectory time"],
        read_outs: Float[Tensor, "batch trajectory time n_parameters"] | None,
    ) -> TrajectoryObjective:
        """The objective along trajectories.

        Args:
            model: the model.
            inputs: what the trajectories see.
            noise: the noise of all particles.
            trajectories: the particle that each trajectory passes through at each step.
            read_outs: the parameters of p(X_t | z) that the filter found along the trajectories; None if
                it has not been through them.
        """
        ...


def pathwise_objective(
    model: "SMCTransformer",
    inputs: TrajectoryInputs,
    noise: Noise,
    trajectories: Int[Tensor, "batch trajectory time"],
    read_outs: Float[Tensor, "batch trajectory time n_parameters"] | None,
) -> TrajectoryObjective:
    """Log p(X_t | eps), with the standard noise eps as the latent (the default).

    eps has an observation model without parameters, so log p(eps, X) = log p(eps) + sum_t log p(X_t | eps), and only
    the second term has a gradient, which flows through q, k, v and z. Little variance when the noises are small.
    """
    if engine.can_replay(model, inputs.embedding, noise):
        seen = (inputs.embedding, inputs.last_targets)
        parameters = engine.run_replay(model, *seen, noise, trajectories, read_outs)
    else:
        parameters = replay(model, inputs, noise, trajectories).parameters
    return TrajectoryObjective(model.observation.components(parameters).log_prob(inputs.targets), parameters)


def score_objective(
    model: "SMCTransformer",
    inputs: TrajectoryInputs,
    noise: Noise,
    trajectories: Int[Tensor, "batch trajectory time"],
    read_outs: Float[Tensor, "batch trajectory time n_parameters"] | None,
) -> TrajectoryObjective:
    """Log p(q, k, v, z, X), with the latents as fixed numbers (the paper's formula).

    log N(q; Wq e, Sq) + log N(k; Wk e, Sk) + log N(v; Wv e, Sv) + log N(z; mean(q, k, v), Sz) + log p(X_t | z).
    """
    del read_outs  # here the parameters of the distribution depend on z alone, and have to be computed from it
    attention = model.attention
    for name, covariance in model.latent_covariances().items():
        if covariance.is_zero:
            raise ValueError(
                f'gradient="score" needs a density of the {name} noise, but its covariance is zero; '
                'use gradient="pathwise"'
            )
    means = attention.means(inputs.embedding)
    with torch.no_grad():
        latents = attention.latents(inputs.embedding, noise, trajectories)
    attention_mean = attention.attend_all(latents)
    z = (attention_mean + attention.deviation(noise, trajectories)).detach()
    parameters = model.read_out(z, inputs.embedding, inputs.last_targets)
    log_density = (
        attention.query_covariance.log_density(latents.query - means.query)
        + attention.key_covariance.log_density(latents.key - means.key)
        + attention.value_covariance.log_density(latents.value - means.value)
        + attention.attention_covariance.log_density(z - attention_mean)
        + model.observation.components(parameters).log_prob(inputs.targets)
    )
    return TrajectoryObjective(log_density, parameters)


OBJECTIVES: dict[str, Objective] = {"pathwise": pathwise_objective, "score": score_objective}
