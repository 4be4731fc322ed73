"""A row of followed series in one call of C: the numbers of the steps of torch, with the same random numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.agreement import random_model
from helpers.models import sequences
from scipy.special import stdtr

from smc_transformer.forecaster.following import Follower, StreamKeys
from smc_transformer.inference import follow
from smc_transformer.inference.step import begin
from smc_transformer.kernels import disabled
from smc_transformer.nn.streams import Streams

SINGLE = 2e-4
"""Allowed in float32: particles that were weighed by numbers which differ in the last bit."""
KEYS = torch.tensor([3, -5, 2**60, 17])
CASES = [
    {"window": 6, "encoder": "gru"},
    {"window": None, "encoder": "gru", "predict_change": True, "n_heads": 2},
    {"window": 5, "encoder": "linear", "input_changes": True, "covariance": "isotropic"},
    {"window": 6, "encoder": "gru", "input_changes": True, "readout": "linear"},
    {"window": 4, "encoder": "gru", "observation": "gaussian"},
    {"window": 4, "encoder": "linear", "observation": "heteroscedastic", "predict_change": True},
]


def model_of(case, n_targets=1):
    settings = {"n_inputs": n_targets + 2, "n_targets": n_targets, "d_model": 12, "observation": "student_t", **case}
    return random_model(4, **settings).float()


def followed(model, x, *, n_particles=9, keys=KEYS, settings=None, in_c=True, monkeypatch):
    """Judgements of all rows, and the particles after them."""
    n_targets = model.config.n_targets
    with monkeypatch.context() as patch:
        if not in_c:  # torch and the kernels of single steps
            patch.setattr(follow, "follow_model", lambda *_: None)
        follower = Follower(model, settings or model.settings(n_particles))
        state, found = begin(model, x[:, 0], n_particles), []
        for t in range(1, x.shape[1]):
            runs = torch.zeros(len(x), n_targets, dtype=torch.long)
            targets, known = x[:, t, :n_targets].clone(), x[:, t - 1, n_targets:]
            said, _ = follower.take_step(state, targets, known, StreamKeys(keys), runs, None)
            found.append(said.judgement)
    return found, state


def rows_with_gaps(n_inputs, n_targets, gaps):
    x = sequences(4, 14, n_inputs).float()
    if gaps:
        x[0, 5, :n_targets] = x[2, 8:10, 0] = float("nan")
    return x


def assert_close(one, other):
    torch.testing.assert_close(one, other, rtol=SINGLE, atol=SINGLE, equal_nan=True)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_numbers_are_those_of_torch(case, n_targets, gaps, monkeypatch):
    model = model_of(case, n_targets)
    x = rows_with_gaps(n_targets + 2, n_targets, gaps)
    assert follow.follow_model(model, model.settings(9)) is not None
    found, state = followed(model, x, monkeypatch=monkeypatch)
    expected, other = followed(model, x, in_c=False, monkeypatch=monkeypatch)
    for one, another in zip(found, expected, strict=True):
        assert_close(one.log_density, another.log_density)
        assert_close(one.pit, another.pit)
    for name, tensor in state.named_tensors().items():
        if name != "trajectories_are_own":
            assert_close(tensor, other.named_tensors()[name])


@pytest.mark.parametrize("scheme", ["multinomial", "residual", "stratified", "systematic"])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0])
def test_selection_is_that_of_torch(scheme, threshold, monkeypatch):
    model = model_of(CASES[0])
    settings = replace(model.settings(9), resampling=scheme, ess_threshold=threshold)
    x = rows_with_gaps(3, 1, gaps=False)
    _, state = followed(model, x, settings=settings, monkeypatch=monkeypatch)
    _, other = followed(model, x, settings=settings, in_c=False, monkeypatch=monkeypatch)
    assert torch.equal(state.trajectories, other.trajectories)
    assert_close(state.log_weights, other.log_weights)


@pytest.mark.parametrize("gaps", [False, True])
def test_a_series_does_not_depend_on_those_beside_it(gaps, monkeypatch):
    """To the bit; also with inputs of its own that others of its batch have made necessary."""
    model = model_of(CASES[3], 2)
    x = rows_with_gaps(4, 2, gaps)
    found, state = followed(model, x, monkeypatch=monkeypatch)
    for row in range(4):
        alone, own = followed(model, x[row : row + 1], keys=KEYS[row : row + 1], monkeypatch=monkeypatch)
        for one, another in zip(found, alone, strict=True):
            for part, other in zip(one[:2], another[:2], strict=True):
                np.testing.assert_array_equal(part[row], other[0])
        assert torch.equal(state.log_weights[row], own.log_weights[0])
        assert torch.equal(state.keys[row], own.keys[0])
        assert torch.equal(state.trajectories[row], own.trajectories[0])


def test_threads_change_nothing(monkeypatch):
    model = model_of({"window": 30, "encoder": "gru", "d_model": 32})
    x = sequences(24, 3, 3).float()
    keys, before, states = torch.arange(24), torch.get_num_threads(), []
    try:
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            states.append(followed(model, x, n_particles=65, keys=keys, monkeypatch=monkeypatch)[1])
    finally:
        torch.set_num_threads(before)
    for name, tensor in states[0].named_tensors().items():
        assert torch.equal(tensor, states[1].named_tensors()[name]), name


def test_a_row_that_no_particle_explains_leaves_equal_weights(monkeypatch):
    model = model_of(CASES[4])
    x = rows_with_gaps(3, 1, gaps=False)
    x[1, -1, 0] = 1e30
    _, state = followed(model, x, monkeypatch=monkeypatch)
    equal = torch.full((9,), -np.log(9.0))
    torch.testing.assert_close(state.log_weights[1], equal.float())
    assert not torch.allclose(state.log_weights[0], equal.float())


@pytest.mark.parametrize("degrees", [2.2, 3.0, 7.5, 30.0, 1000.0, 99_000.0, 2e5])
def test_the_distribution_function_is_that_of_scipy(degrees, monkeypatch):
    """The PIT of one particle is the distribution function itself, in all places."""
    model = model_of({"window": 4, "encoder": "linear"})
    model.observation.set_degrees_(degrees)
    z = torch.cat((torch.linspace(-60, 60, 41), torch.tensor([1e-4, -1e-4, 0.0, 1e4, -1e4, 1e12])))
    x = torch.zeros(len(z), 2, 3)
    keys = torch.zeros(len(z), dtype=torch.long)
    follower, seen = Follower(model, model.settings(1)), []
    for targets in (torch.zeros(len(z), 1), z.unsqueeze(1)):
        state = begin(model, x[:, 0], 1)
        with torch.no_grad():
            found = follower.predict(state, x[:, 0, 1:], targets, Streams(keys))
        location, scale = model.observation.location_and_scale(found.parameters)
        seen.append((found.judgement.pit, (targets - location[:, 0]) / (scale[:, 0] * model.observation.widening)))
    pit, standard = seen[1]
    nu = float(model.observation.degrees.detach())
    np.testing.assert_allclose(pit, stdtr(nu, standard.detach().double().numpy()), rtol=2e-5, atol=1e-9)


def test_what_has_changed_is_seen():
    """An answer is kept, but not for longer than it is right."""
    model = model_of(CASES[0])
    settings = model.settings(9)

    def ask():
        return follow.follow_model(model, settings)

    known = ask()
    assert ask() is known
    with torch.no_grad():
        model.attention.query.weight.mul_(1.5)  # which C reads where it is
    assert ask() is known
    with disabled():
        assert ask() is None
    model.observation.set_degrees_(5.0)
    assert ask() not in (None, known)
    known = ask()
    model.observation.widening.data *= 2  # torch does not count such a change
    assert ask() not in (None, known)
    hook = model.readout.register_forward_hook(lambda *_: None)
    assert ask() is None
    hook.remove()
    assert ask() is not None
    model.encoder.step = model.encoder.step
    assert ask() is None
    del model.encoder.step
    model.attention.query.weight = torch.nn.Parameter(torch.zeros(12, 12))
    assert ask() not in (None, known)
    model.readout = torch.nn.Identity()
    assert ask() is None


def test_c_is_given_nothing_of_another_shape():
    model = model_of(CASES[0])
    compiled = follow.follow_model(model, model.settings(9))
    state = begin(model, torch.zeros(4, 3), 9)
    with pytest.raises(ValueError, match="last must be contiguous and of shape"):
        follow.run_follow(compiled, replace(state, last=state.last[..., :2]), KEYS, torch.zeros(4, 1))
    with pytest.raises(ValueError, match="stream_keys must be contiguous"):
        follow.run_follow(compiled, state, KEYS[:3], torch.zeros(4, 1))
    with pytest.raises(ValueError, match="targets must be contiguous"):
        follow.run_follow(compiled, state, KEYS, torch.zeros(4, 2))
