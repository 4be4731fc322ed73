"""Sequences that have seen more or less than others take steps with them, and get what they get alone."""

import pytest
import torch
from helpers.models import make_model, sequences
from helpers.unequal import middle, noise_of, step, unequal, walk

from smc_transformer.kernels import disabled
from smc_transformer.nn.attention import Noise
from smc_transformer.smc import RESAMPLERS, WeightCollapseError

LENGTHS = (1, 9, 3, 4, 5, 14)
"""Of sequences before their steps: one has seen no slot yet; rings of 4 are empty, filling, just full, gone round."""

ROOMS = [(4, 4), (4, 40), (None, 40), (None, 14), (1, 1)]
"""Windows and capacities: rings, a window over more slots, no window with enough room, and with too little."""


@pytest.fixture(params=["kernels", "torch"])
def engine(request):
    if request.param == "kernels":
        yield
    else:
        with disabled():
            yield


@pytest.fixture
def settings_of(monkeypatch):
    """Settings whose resampling depends on nothing but the weights."""
    monkeypatch.setitem(RESAMPLERS, "middle", middle)
    return lambda model: model.settings(6)


def small(window, **settings):
    return make_model(d_model=6, d_ff=5, window=window, resampling="middle", ess_threshold=0.9, **settings)


ENCODERS = {
    "linear": {"position_encoding": "sinusoidal"},
    "learned": {"encoder": "linear", "position_encoding": "learned", "max_positions": 40},
    "changes": {"encoder": "gru", "input_changes": True, "n_inputs": 2, "n_targets": 1},
    "convolution": {"encoder": "convolution", "input_changes": True, "n_heads": 2},
}


# Every room with every encoder; every one of them with a gap and without one.
CASES = [
    (*room, encoder, 2 if (number + place) % 2 else None)
    for number, room in enumerate(ROOMS)
    for place, encoder in enumerate(ENCODERS)
]


@pytest.mark.parametrize(("window", "capacity", "encoder", "gap_at"), CASES)
def test_together_as_alone(window, capacity, encoder, gap_at, settings_of, engine):
    model = small(window, **ENCODERS[encoder])
    if encoder == "learned":
        torch.nn.init.normal_(model.encoder.position.table, generator=torch.Generator().manual_seed(0))
    settings = settings_of(model)
    together = unequal(model, settings, LENGTHS, capacity, gap_at=gap_at)
    alone = [together.take(torch.tensor([row])) for row in range(len(LENGTHS))]
    x = sequences(len(LENGTHS), 7, model.config.n_inputs, seed=99)
    for number in range(8):
        each = [noise_of(model, row, 100 + number) for row in range(len(LENGTHS))]
        noise = Noise(*(torch.cat(eps) for eps in zip(*each, strict=True)))
        parameters, increments = step(model, settings, together, x[:, number], noise)
        for row, state in enumerate(alone):
            expected = step(model, settings, state, x[row : row + 1, number], each[row])
            torch.testing.assert_close(parameters[row : row + 1], expected[0])
            torch.testing.assert_close(increments[row : row + 1], expected[1])
            torch.testing.assert_close(together.log_weights[row : row + 1], state.log_weights)
    assert together.position.tolist() == together.n_slots.tolist() == [length + 7 for length in LENGTHS]
    paths, ends = walk(model, settings, together, 5, 6)
    for row, state in enumerate(alone):
        expected, _ = walk(model, settings, state, 5, 6, ends[row : row + 1])
        torch.testing.assert_close(paths[row : row + 1], expected)


@pytest.mark.parametrize("window", [4, None])
def test_paths_of_sequences_with_and_without_a_past(window, settings_of, engine):
    model = small(window, encoder="gru")
    settings = settings_of(model)
    together = unequal(model, settings, LENGTHS, window or 20)
    paths, ends = walk(model, settings, together, 5, 6)
    for row in range(len(LENGTHS)):
        expected, _ = walk(model, settings, together.take(torch.tensor([row])), 5, 6, ends[row : row + 1])
        torch.testing.assert_close(paths[row : row + 1], expected)


def test_a_collapse_is_reported_at_the_position_of_its_sequence(settings_of):
    model = small(4)
    settings, together = settings_of(model), unequal(model, settings_of(model), (3, 9), 4)
    with pytest.raises(WeightCollapseError) as caught:
        step(model, settings, together, torch.tensor([[0.0], [1e200]]).double(), None)
    assert (caught.value.sequence, caught.value.step) == (1, 9)
