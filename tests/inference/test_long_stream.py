"""Streams without end: after the window is full nothing grows, and a counter at a million is as exact as at ten."""

import mpmath
import numpy as np
import pytest
import torch
from helpers.models import make_model, sequences
from safetensors.torch import save

from benchmarks.long_stream import tensors_of
from smc_transformer.nn.encoders.position import SinusoidalPosition

NAN = float("nan")
WINDOW = 12
FAR = WINDOW * 83_334
"""Steps to jump over: more than a million, and whole turns of the ring."""


def observed(model, n_observations, *, gap_at=None, seed=0):
    """A state after some observations."""
    state = model.init_state(1, 10, generator=seed)
    x = sequences(1, n_observations - 1, seed=seed, dtype=torch.float32)
    for t in range(n_observations):
        state, _ = model.observe(state, x[:, t] * NAN if t == gap_at else x[:, t])
    return state


def small_model(**settings):
    return make_model(d_model=8, d_ff=8, window=WINDOW, **settings).float()


def sizes(state):
    """Bytes of all memory that the state keeps alive, and the length of its tensors written to a file."""
    tensors = list(tensors_of(state))
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    written = save({str(place): tensor.contiguous().clone() for place, tensor in enumerate(tensors)})
    return sum(storages.values()), len(written)


@pytest.mark.parametrize(
    ("encoder", "gap_at", "late"),
    [("gru", None, 2000), ("gru", 20, 300), ("linear", None, 300), ("lstm", 20, 300), ("convolution", None, 300)],
)
def test_a_state_holds_as_much_late_as_after_50_observations(encoder, gap_at, late):
    model = small_model(encoder=encoder)
    early = sizes(observed(model, 50, gap_at=gap_at))
    assert sizes(observed(model, late, gap_at=gap_at)) == early


def test_what_does_grow_is_seen():
    """The same question about a model without a window, and about an encoder that remembers everything."""
    for settings in ({"window": None}, {"encoder": "transformer"}):
        model = make_model(**{"d_model": 8, "d_ff": 8, "window": WINDOW, **settings}).float()
        few, many = sizes(observed(model, 50)), sizes(observed(model, 150))
        assert few[0] < many[0]
        assert few[1] < many[1]


@pytest.mark.parametrize("encoder", ["linear", "gru", "convolution"])
def test_a_million_observations_later_the_numbers_are_the_same(encoder):
    """Without positions, the same particles and noise give the same bits wherever the counters stand."""
    model = small_model(encoder=encoder)
    near, far = (observed(model, 40) for _ in range(2))
    far.particles.position += FAR
    far.particles.n_slots += FAR
    x = sequences(1, 30, seed=1, dtype=torch.float32)
    for t in range(31):
        (near, expected), (far, found) = (model.observe(state, x[:, t]) for state in (near, far))
        assert torch.equal(found.log_density, expected.log_density)
        assert torch.equal(found.pit, expected.pit)
    assert far.n_observed == FAR + 71
    paths = [model.forecast(state, 5, n_samples=20, generator=0) for state in (near, far)]
    assert torch.equal(*paths)
    assert sizes(near) == sizes(far)


@pytest.mark.parametrize("position", [10, 10**6, 10**9])
def test_positions_are_exact_however_far(position):
    """Angles are computed in float64: at position n they are off by n 2^-52, in float32 it would be n 2^-23."""
    d_model = 8
    with mpmath.workdps(50):
        angles = [position * mpmath.mpf(10_000) ** (mpmath.mpf(-even) / d_model) for even in range(0, d_model, 2)]
        expected = [float(part(angle)) for angle in angles for part in (mpmath.sin, mpmath.cos)]
    found = SinusoidalPosition(d_model)(position, 1)[0].numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * position * 2.0**-52)


def test_a_stream_a_million_observations_long_sees_the_position_it_is_at():
    model = small_model(encoder="linear", position_encoding="sinusoidal")
    state = observed(model, 40)
    state.particles.position += FAR
    state.particles.n_slots += FAR
    place = int(state.particles.position)
    x = torch.ones(1, 1)
    state, _ = model.observe(state, x)
    plain = model.encoder.projection(model.observation.features(x))
    shift = (state.prediction.moved.embedding[0] - plain)[0].detach()
    expected = SinusoidalPosition(8)(place, 1)[0]
    # Float32 embeddings of the order of one: a few roundings of 2^-24 each.
    np.testing.assert_allclose(shift, expected, atol=1e-6)
    assert (expected - SinusoidalPosition(8)(place + 1, 1)[0]).abs().max() > 0.1  # the next position is another one
