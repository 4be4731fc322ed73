"""Forecasts: sampled paths of the future, with or without gradients.

A forecast is a filter whose future observations are missing: each path inherits a particle's trajectory from the
history, by its weight, then draws latents and an observation at every step and goes on with that observation as its
own input. The paths are joint over steps and targets; no mean or median is ever fed back. `draw_paths` draws them all,
in C or in a loop over steps.
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from smc_transformer.inference import compiled, engine
from smc_transformer.inference.chunks import in_chunks
from smc_transformer.inference.filter import filter_numbers, filter_state, particle_filter
from smc_transformer.inference.mutation import mutate
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import Prediction, begin, embed, receive, spread
from smc_transformer.kernels import threads_for_kernels
from smc_transformer.kernels.densities import NegativeBinomial
from smc_transformer.kernels.noise import draw_seed, fill_normals
from smc_transformer.network import Network
from smc_transformer.nn.attention import Noise
from smc_transformer.nn.noise import of_seeds
from smc_transformer.nn.streams import Streams
from smc_transformer.smc.genealogy import gather_trajectories, trace_trajectories
from smc_transformer.support.chunks import chunk_size
from smc_transformer.support.memory import check_memory

NUMBERS_AT_ONCE = 2**26
"""About how many numbers a forecast holds at a time (256 MiB in float32): sequences are done in chunks."""


class Paths(NamedTuple):
    """Sampled futures."""

    targets: Float[Tensor, "batch path horizon n_targets"]
    """Differentiable in the network's parameters, where gradients are wanted."""
    parameters: Float[Tensor, "batch path horizon n_parameters"]
    """Parameters of the distributions that they were drawn from."""


def draw_paths(
    network: Network,
    state: ParticleState,
    future_inputs: Float[Tensor, "batch horizon known"],
    generator: Generator | None,
    *,
    first: Float[Tensor, "batch path n_parameters"] | None = None,
) -> Paths:
    """Draw the targets of each particle and give them to it as its next input, one step for each future input.

    Args:
        network: the network.
        state: the paths where they begin; of no use afterwards.
        future_inputs: the inputs that are not targets, at the steps of the horizon.
        generator: source of randomness.
        first: parameters of the first step, where the particles have moved on to it already.
    """
    n_paths, n_steps = state.n_particles, future_inputs.shape[1]
    if first is None and engine.can_draw_paths(network, state.last, generator):
        with threads_for_kernels():
            noise, draws = _draws_of_steps(network, state, n_steps, generator)
            streams = generator if isinstance(generator, Streams) else None
            return Paths(*compiled.run_paths(network, state, future_inputs, noise, draws, streams))
    found: list[tuple[Tensor, Tensor]] = []
    for ahead, known in enumerate(future_inputs.unbind(dim=1)):
        parameters = first
        if ahead > 0 or parameters is None:
            noise = network.attention.draw_noise(len(state), n_paths, 1, generator).at(0)
            parameters = mutate(network, state, embed(network, state), noise).parameters
        targets = network.observation.components(parameters).sample(generator)
        found.append((targets, parameters))
        receive(state, torch.cat((targets, known.unsqueeze(1).expand(-1, n_paths, -1)), dim=-1))
    return Paths(*(torch.stack(steps, dim=2) for steps in zip(*found, strict=True)))


def _draws_of_steps(
    network: Network, state: ParticleState, n_steps: int, generator: Generator | None
) -> tuple[Noise | Int[Tensor, "horizon"], Float[Tensor, "batch path horizon n_targets"] | Int[Tensor, "horizon 2"]]:
    """The noise and the draws of all steps, or what C makes them of: see `compiled.run_paths`.

    In the order in which they would be drawn step by step, so that the same seed gives the same paths.
    """
    batch, n_paths = len(state), state.n_particles
    if isinstance(engine.kernel_form(network.observation), NegativeBinomial):
        assert isinstance(generator, Streams)
        numbers = torch.tensor([[generator.next_draw() for _ in range(3)] for _ in range(n_steps)])
        return numbers[:, 0].contiguous(), numbers[:, 1:].contiguous()
    draw = partial(network.observation.standard_draws, (batch, n_paths), state.last, generator)
    if engine.can_seed_paths(network, state.last):
        seeds, drawn = zip(*((_next_seed(generator), draw()) for _ in range(n_steps)), strict=True)
        return torch.stack(seeds), torch.stack(drawn, dim=2)
    if not isinstance(generator, Streams) and of_seeds(state.last):  # the noise of all steps in one call
        seeds, drawn = zip(*((draw_seed(generator), draw()) for _ in range(n_steps)), strict=True)
        shape = (n_steps, 4, batch, n_paths, network.config.d_model)
        rows = fill_normals(state.last.new_empty(shape), torch.stack(seeds))
        return Noise(*rows.permute(1, 2, 3, 0, 4).unbind()), torch.stack(drawn, dim=2)
    step_noise = partial(network.attention.draw_noise, batch, n_paths, 1, generator)
    noises, drawn = zip(*((step_noise(), draw()) for _ in range(n_steps)), strict=True)
    return Noise(*(torch.cat(parts, dim=2) for parts in zip(*noises, strict=True))), torch.stack(drawn, dim=2)


def _next_seed(generator: Generator | None) -> Int[Tensor, ""]:
    """The seed of the noise of a step; of streams, the number of the draw."""
    return torch.tensor(generator.next_draw()) if isinstance(generator, Streams) else draw_seed(generator)


@torch.no_grad()
def sample_paths(
    network: Network,
    settings: InferenceSettings,
    history: Float[Tensor, "batch past n_inputs"],
    future_inputs: Float[Tensor, "batch horizon known"],
    *,
    n_samples: int,
    on_collapse: str = "error",
    generator: Generator | None = None,
) -> Float[Tensor, "batch sample horizon n_targets"]:
    """Draw paths of the targets after a history; see `SMCTransformer.forecast`."""
    n_past, horizon = history.shape[1], future_inputs.shape[1]
    check_paths(network, len(history), n_samples, horizon)
    held = filter_numbers(network, settings, n_past) + path_numbers(network, n_samples, n_past + horizon)

    def forecast(past: Tensor, known: Tensor) -> Tensor:
        state = filter_state(network, past, settings, generator, on_collapse=on_collapse)
        return continued_paths(network, settings, state, known, n_samples, generator)

    return torch.cat(list(in_chunks(forecast, chunk_size(NUMBERS_AT_ONCE, held), history, future_inputs)))


def check_paths(network: Network, n_sequences: int, n_paths: int, horizon: int) -> None:
    """Raise a `MemoryError` for more paths than the machine can hold, by what is kept of them for certain.

    That is the targets and parameters of all of them, and what the paths of one sequence attend to.
    """
    config, size = network.config, network.attention.query.weight.element_size()
    kept = n_sequences * n_paths * horizon * (config.n_targets + network.observation.n_parameters)
    attended = 2 * n_paths * (horizon + (config.window or 1)) * config.d_model
    what = f"a forecast of {n_sequences} sequences, {n_paths} paths each, {horizon} steps ahead"
    check_memory(size * (kept + attended), what)


def path_numbers(network: Network, n_paths: int, length: int) -> int:
    """About how many numbers the paths of a sequence hold: noise, keys and values, and those of the encoder."""
    return (4 + 2 * (1 + network.config.encoder_layers)) * n_paths * length * network.config.d_model


def sequences_at_once(network: Network, n_paths: int, horizon: int, *, made_in_c: bool = False) -> int:
    """How many sequences are done together, whose paths go on from particles: with what these remember.

    Where C draws the paths and makes their noise, hardly more than draws and parameters is held.
    """
    if made_in_c:
        of_a_step = 4 * network.config.n_targets + 2 * network.observation.n_parameters
        return chunk_size(NUMBERS_AT_ONCE, n_paths * (4 * network.config.d_model + horizon * of_a_step))
    remembered = network.config.window or 64
    return chunk_size(NUMBERS_AT_ONCE, path_numbers(network, n_paths, horizon + remembered))


def rollout_numbers(network: Network, n_paths: int, past: Float[Tensor, "batch past n_inputs"], horizon: int) -> int:
    """About how many numbers `rollout` holds of a sequence for the gradient."""
    n_past, d_model = past.shape[1], network.config.d_model
    if engine.can_draw_paths(network, past):  # noise, and the slots before the first step with their gradients
        n_seen = n_past - network.attention.first_slot(n_past)
        return 8 * n_paths * (horizon + n_seen) * d_model
    return 4 * n_paths * horizon * (n_past + horizon) * d_model  # the keys and values that each step attended to


@torch.no_grad()
def continued_paths(
    network: Network,
    settings: InferenceSettings,
    state: ParticleState,
    future_inputs: Float[Tensor, "batch horizon known"],
    n_samples: int,
    generator: Generator | None,
    *,
    prediction: Prediction | None = None,
) -> Float[Tensor, "batch sample horizon n_targets"]:
    """Draw paths that go on from particles, which stay as they are.

    With the `prediction` of the next step, which the particles have made already, the paths begin with it.
    """
    check_paths(network, len(future_inputs), n_samples, future_inputs.shape[1])
    paths, ends = spread(network, settings, state, n_samples, future_inputs.shape[1], generator)
    first = None
    if prediction is not None:
        index = ends.unsqueeze(-1).expand(-1, -1, prediction.parameters.shape[-1])
        first = prediction.parameters.gather(1, index)
    return draw_paths(network, paths, future_inputs, generator, first=first).targets


def rollout(
    network: Network,
    settings: InferenceSettings,
    history: Float[Tensor, "batch past n_inputs"],
    future_inputs: Float[Tensor, "batch horizon known"],
    *,
    n_paths: int,
    generator: Generator | None = None,
) -> Paths:
    """Draw joint paths of the targets after the history, differentiable in the network's parameters.

    The filter goes through the history without gradients and says which trajectories the paths descend from. Their
    latents are rebuilt from their noise, as in the replay, and every path goes on from there: its draws are functions
    of standard noise (the reparametrisation of the paper's section 4.1), so a score of the paths has a gradient. Which
    trajectories were chosen is a constant in it, as in Fisher's identity.

    Args:
        network: the network.
        settings: of the inference; its particles filter the history.
        history: X_0, ..., X_H; targets may be missing (NaN) after X_0.
        future_inputs: the inputs that are not targets at the steps of the horizon.
        n_paths: paths of each sequence.
        generator: source of randomness.
    """
    state = _differentiable_state(network, settings, history, n_paths, generator)
    return draw_paths(network, state, future_inputs, generator)


def _differentiable_state(
    network: Network,
    settings: InferenceSettings,
    history: Float[Tensor, "batch past n_inputs"],
    n_paths: int,
    generator: Generator | None,
) -> ParticleState:
    """Paths at the end of a history, with the latents that the next step sees as functions of the parameters."""
    n_past = history.shape[1] - 1
    if n_past == 0:
        last = history.expand(-1, n_paths, -1)
        encoder_state = network.encoder.start(network.observation.features(last.flatten(0, 1)))
        state = begin(network, history[:, 0], n_paths, 0, encoder_state)
        state.last = last
        return state
    noise, trajectories, inputs = _chosen_trajectories(network, settings, history, n_paths, generator)
    embedding, encoder_state = network.encoder.encode(network.observation.features(inputs[:, :, :-1].flatten(0, 1)))
    seen = embedding.unflatten(0, inputs.shape[:2])[:, :, network.attention.first_slot(n_past) :]
    latents = network.attention.latents(seen, noise, trajectories)
    repeats = n_paths // inputs.shape[1]
    state = begin(
        network,
        history[:, 0],
        n_paths,
        0,
        tuple(tensor.repeat_interleave(repeats, dim=0) for tensor in encoder_state),
    )
    state.last = inputs[:, :, -1].expand(-1, n_paths, -1)
    state.keys, state.values = latents.key, latents.value
    state.trajectories = state.themselves.unsqueeze(-1).expand(-1, -1, latents.key.shape[2])
    state.position, state.n_slots = state.position + n_past, state.n_slots + latents.key.shape[2]
    return state


@torch.no_grad()
def _chosen_trajectories(
    network: Network,
    settings: InferenceSettings,
    history: Float[Tensor, "batch past n_inputs"],
    n_paths: int,
    generator: Generator | None,
) -> tuple[Noise, Int[Tensor, "batch path seen"], Float[Tensor, "batch _ past n_inputs"]]:
    """The noise of all particles, the trajectories that the paths descend from, by weight, and what these have seen.

    Noise and trajectories are only those of the last slots, which the first step of the forecast can see.
    """
    result = particle_filter(network, history, settings, generator)
    ends = settings.resample(result.log_weights[..., -1], n_paths, generator)
    trajectories = trace_trajectories(result.ancestors, ends)
    inputs = history.unsqueeze(1)
    if result.completed is not None:
        inputs = inputs.repeat(1, n_paths, 1, 1)
        inputs[:, :, 1:, : network.config.n_targets] = gather_trajectories(result.completed, trajectories)
    seen = slice(network.attention.first_slot(history.shape[1] - 1), None)
    return Noise(*(eps[:, :, seen] for eps in result.noise)), trajectories[:, :, seen], inputs
