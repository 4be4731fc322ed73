"""Smoothing: weighted trajectories of a filter's particles, by the smoother that the settings name."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.filter import Filtered
from smc_transformer.inference.future_density import NetworkFutureDensity
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.network import Network
from smc_transformer.smc.smoothers import SMOOTHERS, History, Request, SmoothedTrajectories


@torch.no_grad()
def smooth(
    network: Network,
    settings: InferenceSettings,
    x: Float[Tensor, "batch time_plus_1 n_inputs"],
    result: Filtered,
    n_trajectories: int | None = None,
    generator: Generator | None = None,
) -> SmoothedTrajectories:
    """Trajectories of the filter's particles.

    Args:
        network: the network.
        settings: of the inference, by which `result` was made too.
        x: the sequences.
        result: what the filter found.
        n_trajectories: how many, drawn by weight; None: one for each particle.
        generator: source of randomness.
    """
    # First-stage weights of an auxiliary filter are no draws by the weights of the step before.
    by_weight = torch.zeros_like(result.resampled) if settings.propose.anticipates else result.resampled
    history = History(result.ancestors, result.log_weights, by_weight)
    # Made only if a smoother asks: it needs the latents of all particles.
    prepared: list[NetworkFutureDensity] = []

    def future_density(step: int, trajectories: Tensor, lag: int) -> Tensor:
        if result.completed is not None:
            raise ValueError(f'smoother="{settings.smoother}" needs sequences without missing values; use "fixed_lag"')
        if not prepared:
            prepared.append(NetworkFutureDensity(network, x, result.noise, result.ancestors))
        return prepared[0](step, trajectories, lag)

    request = Request(n_trajectories, settings.smoothing_lag, settings.resample, future_density, generator)
    return SMOOTHERS[settings.smoother](history, request)
