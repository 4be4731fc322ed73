"""Series followed row by row, each row by one call of C: what it needs of a network is kept while nothing changes."""

import operator
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.inference import engine
from smc_transformer.inference.compiled import layer_tensors
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.watch import Watch
from smc_transformer.kernels.choice import about_numbers, in_c
from smc_transformer.kernels.densities import Elliptical
from smc_transformer.kernels.follow import FollowBlock, Followed, FollowModel, FollowSettings, FollowTensors
from smc_transformer.network import Network
from smc_transformer.nn.streams import NOISE, SELECTION


def follow_model(network: Network, settings: InferenceSettings) -> FollowModel | None:
    """What follows series in C, row by row; None where torch has a part in it.

    To look for the reasons takes longer than a row: an answer holds until something has changed that it depends on.
    Weights may change where they are, as C reads them there.
    """
    known = _FOLLOW_MODELS.get(network)
    enabled = not about_numbers(network.attention.query.weight)
    if known is not None and known.settings == settings and known.enabled == enabled and known.watch.is_unchanged():
        return known.model
    model = _make_follow_model(network, settings) if in_c(engine.explain_follow(network, settings)) else None
    _FOLLOW_MODELS[network] = _Known(settings, enabled, Watch(network), model)
    return model


def _make_follow_model(network: Network, settings: InferenceSettings) -> FollowModel:
    attention, form, config = network.attention, engine.kernel_form(network.observation), network.config
    encoder = network.encoder.kernel_form()
    assert isinstance(form, Elliptical)
    assert encoder is not None
    constants = FollowSettings(
        attention.window,
        config.n_inputs,
        config.n_targets,
        config.predict_change,
        settings.resampling,
        settings.ess_threshold,
        SELECTION,
        NOISE,
    )
    projections = {name: getattr(attention, name).weight for name in ("query", "key", "value")}
    return FollowModel(layer_tensors(network, read_out=True), encoder, form, projections, constants)


class _Known(NamedTuple):
    settings: InferenceSettings
    enabled: bool
    watch: Watch
    model: FollowModel | None


_FOLLOW_MODELS: "weakref.WeakKeyDictionary[Network, _Known]" = weakref.WeakKeyDictionary()


def follow_block(model: FollowModel, state: ParticleState) -> FollowBlock:
    """Series of a state that stays where it is, whose slots are a ring, for rows that come one by one."""
    state.make_contiguous()
    tensors = (
        state.last,
        state.keys,
        state.values,
        state.trajectories,
        state.log_weights,
        state.informed,
        state.position,
        state.n_slots,
        *state.encoder_state,
    )
    known: tuple[FollowModel, tuple[Tensor, ...], FollowBlock] | None = state.follow_block
    if known is not None and known[0] is model and all(map(operator.is_, known[1], tensors)):
        return known[2]
    last, keys, values, trajectories, log_weights, informed, position, n_slots = tensors[:8]
    rest = (trajectories, log_weights, informed, position, n_slots, position)
    found = model.block(FollowTensors(last, *_of_encoder(state.encoder_state), keys, values, None, *rest))
    state.follow_block = (model, tensors, found)
    return found


def _of_encoder(state: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """The inputs before the last, and what a GRU remembers, (row, d), of an encoder's state."""
    previous = next((part for part in state if part.ndim == 2), None)
    hidden = next((part for part in state if part.ndim == 3), None)
    return previous, None if hidden is None else hidden.flatten(1)


def run_follow(
    model: FollowModel,
    state: ParticleState,
    stream_keys: Int[Tensor, "batch"],
    targets: Float[Tensor, "batch n_targets"],
) -> Followed:
    """Take the step of all particles up to a row, in place, and judge the row; needs a `follow_model`.

    Particles have got what is known of the row already, and room for one more slot.
    """
    state.make_contiguous()
    encoder_state = [part.clone(memory_format=torch.contiguous_format) for part in state.encoder_state]
    previous, hidden = _of_encoder(encoder_state)
    log_weights = state.log_weights.clone(memory_format=torch.contiguous_format)
    series = FollowTensors(
        state.last,
        previous,
        hidden,
        state.keys,
        state.values,
        state.held,
        state.trajectories,
        log_weights,
        state.informed.clone(),
        state.position,
        state.n_slots,
        stream_keys.contiguous(),
    )
    found = model.step(series, targets)
    state.log_weights, state.informed, state.encoder_state = log_weights, series.informed, tuple(encoder_state)
    state.trajectories_are_own = state.trajectories_are_own and not bool(found.resampled.any())
    state.n_slots, state.position = state.n_slots + 1, state.position + 1
    return found
