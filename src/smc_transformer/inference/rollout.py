"""Forecast paths with gradients: what `forecasting` draws, as a differentiable function of the parameters.

The filter goes through the history without gradients and says which trajectories the paths descend from. Their latents
are rebuilt from their noise, as in the replay, and every path goes on from there: its draws are functions of standard
noise (the reparametrisation of the paper's section 4.1), so a score of the paths has a gradient. Which trajectories
were chosen is a constant in it, as in Fisher's identity.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.inference.filter import particle_filter
from smc_transformer.nn.attention import Noise
from smc_transformer.smc.genealogy import gather_trajectories, trace_trajectories
from smc_transformer.smc.resampling import RESAMPLERS

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


class Rollout(NamedTuple):
    """Forecast paths, differentiable in the model's parameters."""

    paths: Float[Tensor, "batch path horizon n_targets"]
    parameters: Float[Tensor, "batch path horizon n_parameters"]
    """Parameters of the distributions that they were drawn from."""


def rollout(
    model: "SMCTransformer",
    history: Float[Tensor, "batch past n_inputs"],
    future_inputs: Float[Tensor, "batch horizon known"],
    *,
    n_paths: int,
    n_particles: int,
    generator: Generator | None = None,
) -> Rollout:
    """Draw joint paths of the targets after the history, differentiable in the model's parameters.

    Args:
        model: the model.
        history: X_0, ..., X_H; targets may be missing (NaN) after X_0.
        future_inputs: the inputs that are not targets at the steps of the horizon.
        n_paths: paths of each sequence.
        n_particles: particles that filter the history.
        generator: source of randomness.
    """
    paths = _Paths(model, history, n_paths, n_particles, generator)
    steps = [paths.advance(known, generator) for known in future_inputs.unbind(dim=1)]
    targets, parameters = zip(*steps, strict=True)
    return Rollout(torch.stack(targets, dim=2), torch.stack(parameters, dim=2))


class _Paths:
    """Paths on their way: the keys and values they see, slot by slot, the encoder's state, and the last inputs."""

    def __init__(
        self,
        model: "SMCTransformer",
        history: Float[Tensor, "batch past n_inputs"],
        n_paths: int,
        n_particles: int,
        generator: Generator | None,
    ):
        self.model = model
        self.shape = (len(history), n_paths)
        self.position = history.shape[1] - 1
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        if self.position == 0:
            self.last = self._of_each_path(history)
            self.state = model.encoder.start(model.observation.features(self.last.flatten(0, 1)))
            return
        noise, inputs = _chosen_trajectories(model, history, n_paths, n_particles, generator)
        features = model.observation.features(inputs[:, :, :-1].flatten(0, 1))
        embedding, state = model.encoder.encode(features)
        seen = embedding.unflatten(0, inputs.shape[:2])[:, :, model.attention.first_slot(self.position) :]
        latents = model.attention.latents(seen, noise)
        self.keys, self.values = list(latents.key.unbind(dim=2)), list(latents.value.unbind(dim=2))
        self.last = self._of_each_path(inputs[:, :, -1])
        repeats = n_paths // inputs.shape[1]
        self.state = tuple(tensor.repeat_interleave(repeats, dim=0) for tensor in state)

    def advance(
        self, known: Float[Tensor, "batch known"], generator: Generator | None
    ) -> tuple[Float[Tensor, "batch path n_targets"], Float[Tensor, "batch path n_parameters"]]:
        """Draw the next targets of every path, which are its next input; also returns the parameters behind them."""
        model, attention = self.model, self.model.attention
        embedding, self.state = model.encoder.step(
            model.observation.features(self.last.flatten(0, 1)), self.state, self.position
        )
        embedding = embedding.unflatten(0, self.shape)
        noise = attention.draw_noise(*self.shape, 1, generator).at(0)
        latents = attention.latents(embedding, noise)
        first = attention.first_slot(len(self.keys))
        self.keys, self.values = [*self.keys[first:], latents.key], [*self.values[first:], latents.value]
        keys, values = torch.stack(self.keys, dim=2), torch.stack(self.values, dim=2)
        z = attention.attend_one(latents.query, keys, values) + attention.deviation(noise)
        parameters = model.read_out(z, embedding, self.last[..., : model.config.n_targets])
        targets = model.observation.components(parameters).sample(generator)
        self.last = torch.cat((targets, self._of_each_path(known.unsqueeze(1))), dim=-1)
        self.position += 1
        return targets, parameters

    def _of_each_path(self, values: Float[Tensor, "batch _ feature"]) -> Float[Tensor, "batch path feature"]:
        return values.expand(-1, self.shape[1], -1)


@torch.no_grad()
def _chosen_trajectories(
    model: "SMCTransformer",
    history: Float[Tensor, "batch past n_inputs"],
    n_paths: int,
    n_particles: int,
    generator: Generator | None,
) -> tuple[Noise, Float[Tensor, "batch _ past n_inputs"]]:
    """The noise of the trajectories that the paths descend from, by weight, and the inputs that they have seen.

    The noise is only that of the last slots, which the first step of the forecast can see.
    """
    result = particle_filter(model, history, n_particles, generator)
    ends = RESAMPLERS[model.config.resampling](result.log_weights[..., -1], n_paths, generator)
    trajectories = trace_trajectories(result.ancestors, ends)
    inputs = history.unsqueeze(1)
    if result.completed is not None:
        n_targets = model.config.n_targets
        inputs = inputs.repeat(1, n_paths, 1, 1)
        inputs[:, :, 1:, :n_targets] = gather_trajectories(result.completed, trajectories)
    seen = slice(model.attention.first_slot(history.shape[1] - 1), None)
    return Noise(*(eps[:, :, seen] for eps in result.noise)).along(trajectories[:, :, seen]), inputs
