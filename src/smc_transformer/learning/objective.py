"""Two objectives whose gradient, averaged over smoothing trajectories, is the score (Fisher's identity).

    grad log p(X) = E[ grad log p(latents, X) | X ]

Both are functions of the noise of given trajectories, and return one number for each trajectory and step. Trajectories,
their weights and observations that were drawn in place of missing ones are constants in the gradient.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.inference import compiled, engine
from smc_transformer.inference.replay import TrajectoryInputs, replay
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.attention import Noise


class Trajectories(NamedTuple):
    """Weighted smoothing trajectories of a batch, and what is known along them."""

    inputs: TrajectoryInputs  # what they see and predict, as completed by each of them where values were missing
    noise: Noise  # the standard noise of all particles; a latent residual is S^(1/2) eps
    particles: Int[Tensor, "batch trajectory time"]  # that each passes through, and so has the noise of, at each step
    log_weights: Float[Tensor, "batch trajectory"]  # normalised
    # The parameters of p(X_t | z) that the filter found along them; None if it has not been through them.
    read_outs: Float[Tensor, "batch trajectory time n_parameters"] | None = None


class TrajectoryObjective(NamedTuple):
    """An objective along trajectories, and the parameters of p(X_t | z), which EM needs too."""

    log_density: Float[Tensor, "batch trajectory time"]
    parameters: Float[Tensor, "batch trajectory time n_parameters"]


def pathwise_objective(model: SMCTransformer, trajectories: Trajectories) -> TrajectoryObjective:
    """Log p(X_t | eps), with the standard noise eps as the latent (the default).

    The distribution of eps has no parameters, so log p(eps, X) = log p(eps) + sum_t log p(X_t | eps), and only the
    second term has a gradient, which flows through q, k, v and z. Little variance when the noises are small.
    """
    inputs, noise, particles, _, read_outs = trajectories
    if engine.can_replay(model, inputs.targets, noise):
        parameters = compiled.run_replay(model, inputs.embedding, inputs.last_targets, noise, particles, read_outs)
    else:
        parameters = replay(model, inputs, noise, particles).parameters
    return TrajectoryObjective(model.observation.components(parameters).log_prob(inputs.targets), parameters)


def score_objective(model: SMCTransformer, trajectories: Trajectories) -> TrajectoryObjective:
    """Log p(q, k, v, z, X), with the latents as fixed numbers (the paper's formula).

    log N(q; Wq e, Sq) + log N(k; Wk e, Sk) + log N(v; Wv e, Sv) + log N(z; mean(q, k, v), Sz) + log p(X_t | z).
    """
    inputs, noise, particles, *_ = trajectories
    attention, embedding = model.attention, inputs.embedding_of_each
    for name, covariance in model.latent_covariances().items():
        if covariance.is_zero:
            raise ValueError(
                f'gradient="score" needs a density of the {name} noise, but its covariance is zero; '
                'use gradient="pathwise"'
            )
    means = attention.means(embedding)
    with torch.no_grad():
        latents = attention.latents(embedding, noise, particles)
    attention_mean = attention.attend_all(latents)
    z = (attention_mean + attention.deviation(noise, particles)).detach()
    parameters = model.read_out(z, embedding, inputs.last_targets)
    log_density = (
        attention.query_covariance.log_density(latents.query - means.query)
        + attention.key_covariance.log_density(latents.key - means.key)
        + attention.value_covariance.log_density(latents.value - means.value)
        + attention.attention_covariance.log_density(z - attention_mean)
        + model.observation.components(parameters).log_prob(inputs.targets)
    )
    return TrajectoryObjective(log_density, parameters)


OBJECTIVES: dict[str, Callable[[SMCTransformer, Trajectories], TrajectoryObjective]] = {
    "pathwise": pathwise_objective,
    "score": score_objective,
}
