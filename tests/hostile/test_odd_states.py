"""States of streams whose tensors a program has put something else in place of, or has written into."""

import copy
from dataclasses import replace

import pytest
import torch
from helpers.models import sequences

from smc_transformer import SMCTransformer

FORECASTER = {"encoder": "gru", "input_changes": True, "observation": "student_t", "predict_change": True}
ENCODERS = ({}, FORECASTER, {"encoder": "transformer"}, {"encoder": "convolution"}, {"encoder": "lstm"})


def begun(batch=2, gaps=False, **settings):
    """A model, a state that has seen five rows, and the next one."""
    model = SMCTransformer.from_settings({"d_model": 8, "d_ff": 8, **settings}, generator=0)
    x = sequences(batch, 9, dtype=torch.float32)
    if gaps:
        x[:, 3] = float("nan")
    state = model.init_state(batch, 6, generator=1)
    for t in range(5):
        model.observe(state, x[:, t])
    return model, state, x[:, 5]


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("settings", ENCODERS, ids=lambda settings: settings.get("encoder", "linear"))
@pytest.mark.parametrize("gaps", [False, True])
def test_copies_of_all_tensors_go_on_with_the_same_numbers(settings, window, gaps):
    model, state, x = begun(gaps=gaps, window=window, **settings)
    other = copy.deepcopy(state)
    other.network = model
    particles = other.particles
    for name in ("last", "log_weights", "informed", "keys", "values", "trajectories", "position", "n_slots"):
        setattr(particles, name, getattr(particles, name).clone())
    particles.encoder_state = tuple(tensor.clone() for tensor in particles.encoder_state)
    found, expected = model.observe(other, x)[1], model.observe(state, x)[1]
    assert torch.equal(found.log_density, expected.log_density)
    assert torch.equal(model.forecast(other, 3, 20, generator=2), model.forecast(state, 3, 20, generator=2))


def out_of_range(particles):
    particles.trajectories[0, 0, 0] = 10**9


def negative(particles):
    particles.trajectories -= 7


REPLACED = {
    "keys of other particles": lambda p: setattr(p, "keys", p.keys[:, :2]),
    "values without width": lambda p: setattr(p, "values", p.values[..., :1]),
    "a short table": lambda p: setattr(p, "trajectories", p.trajectories[..., :1]),
    "places beyond the particles": out_of_range,
    "places below the first": negative,
    "other numbers": lambda p: setattr(p, "keys", p.keys.double()),
    "no tensor": lambda p: setattr(p, "last", None),
    "no weights": lambda p: setattr(p, "log_weights", None),
    "weights of one": lambda p: setattr(p, "log_weights", p.log_weights[:1]),
    "a clock ahead": lambda p: setattr(p, "n_slots", p.n_slots + 1000),
    "a clock behind": lambda p: setattr(p, "n_slots", p.n_slots - 1000),
    "an encoder's memory of others": lambda p: setattr(p, "encoder_state", tuple(t[:1] for t in p.encoder_state)),
    "an encoder without memory": lambda p: setattr(p, "encoder_state", ()),
    "slots of others": lambda p: setattr(p, "held", torch.tensor([5, 900])),
}


@pytest.mark.parametrize("change", REPLACED.values(), ids=REPLACED)
def test_what_the_kernels_could_not_follow_is_refused(change):
    model, state, x = begun(**FORECASTER)
    change(state.particles)
    for use in (lambda: model.observe(state, x), lambda: model.forecast(state, 3, 20), lambda: model.predictive(state)):
        with pytest.raises(ValueError, match=r"must|slots|remembers"):
            use()


def test_particles_of_another_state_are_refused():
    model, state, x = begun()
    state.particles = replace(begun(batch=3)[1].particles)
    with pytest.raises(ValueError, match="3 streams, but there are 2"):
        model.observe(state, x)
