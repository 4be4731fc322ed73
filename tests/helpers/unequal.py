"""Sequences of unequal lengths as the rows of one state, and steps under given noise."""

import torch

from helpers.models import sequences
from smc_transformer.inference.mutation import mutate
from smc_transformer.inference.state import ParticleState
from smc_transformer.inference.step import (
    begin,
    embed,
    inherit_rows,
    observe_step,
    predict_step,
    receive,
    spread,
)


def middle(log_weights, n_samples, generator=None):
    """Systematic resampling with a half for its random number: what a sequence gets depends on its weights alone."""
    places = (torch.arange(n_samples, dtype=torch.float64) + 0.5) / n_samples
    total = log_weights.double().softmax(dim=-1).cumsum(dim=-1)
    return torch.searchsorted(total, places.expand(len(total), -1).contiguous()).clamp(max=log_weights.shape[-1] - 1)


@torch.no_grad()
def step(model, settings, state, x, noise):
    """Predict and observe, with all randomness given; returns the parameters and the increments."""
    generator = torch.Generator().manual_seed(0)
    prediction = predict_step(model, settings, state, generator, noise)
    observed = observe_step(model, settings, state, prediction, x, generator)
    return prediction.parameters, observed.log_increments


def noise_of(model, row, number, n_particles=6):
    """The noise of a sequence at a step."""
    generator = torch.Generator().manual_seed(1000 * row + number)
    return model.attention.draw_noise(1, n_particles, 1, generator).at(0)


@torch.no_grad()
def after(model, settings, row, length, capacity, n_particles=6, gap_at=None):
    """The particles of a sequence after some observations."""
    x = sequences(1, length, model.config.n_inputs, seed=row)
    if gap_at is not None and 0 < gap_at < length:
        x[:, gap_at, : model.config.n_targets] = float("nan")
    state = begin(model, x[:, 0], n_particles, capacity)
    for number in range(1, length):
        step(model, settings, state, x[:, number], noise_of(model, row, number, n_particles))
    if gap_at is not None and not state.has_own_inputs:  # the layout of those with a gap
        receive(state, state.last.expand(-1, n_particles, -1).contiguous())
    return state


def unequal(model, settings, lengths, capacity, **options):
    """The particles of sequences of these lengths in one state."""
    return ParticleState.cat([after(model, settings, row, n, capacity, **options) for row, n in enumerate(lengths)])


@torch.no_grad()
def walk(model, settings, state, n_samples, horizon, ends=None):
    """The parameters of forecast paths under given noise and given draws, and the particles that they began from."""
    paths, drawn = spread(model, settings, state, n_samples, horizon, torch.Generator().manual_seed(0))
    if ends is not None:
        drawn = ends
        if paths.past is not None:
            paths.past = paths.past._replace(parents=ends)
        if state.has_own_inputs:
            paths.last = state.last.gather(1, ends.unsqueeze(-1).expand(-1, -1, state.last.shape[-1]))
            paths.encoder_state = inherit_rows(state.encoder_state, ends)
    found = []
    for number in range(horizon):
        noise = noise_of(model, 7, number, n_samples)
        noise = type(noise)(*(eps.expand(len(state), -1, -1) for eps in noise))
        found.append(mutate(model, paths, embed(model, paths), noise).parameters)
        draws = sequences(1, n_samples - 1, model.config.n_inputs, seed=number)
        receive(paths, draws.expand(len(state), -1, -1))
    return torch.stack(found, dim=2), drawn
