"""Paths in which future values are given: the exact conditional distribution, with and without memory."""

import math

import pytest
import torch
from helpers.models import gappy_model, linear_model, make_model, mean_and_error, sequences, tiny_model
from helpers.oracles import masked_linear
from helpers.oracles.importance import weighted_futures

from smc_transformer.inference import conditioned_paths as module
from smc_transformer.inference.conditioned_paths import UnreachableError, conditioned_paths
from smc_transformer.inference.filter import filter_state
from smc_transformer.support.randomness import as_generator

NAN = math.nan


def draw(model, history, given, n_paths, seed=0, n_particles=50, known=None):
    """Conditioned paths after histories (batch, time, n_inputs)."""
    settings, generator = model.settings(n_particles), as_generator(seed)
    state = filter_state(model, history, settings, generator)
    known = given.new_empty(*given.shape[:2], 0) if known is None else known
    return conditioned_paths(model, settings, state, given, known, n_paths, generator)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


PATTERNS = {
    "the last step": rows([NAN, NAN], [NAN, NAN], [NAN, NAN], [1.5, -1.0]),
    "one target, far ahead": rows([NAN, NAN], [NAN, NAN], [NAN, NAN], [NAN, 2.0]),
    "one target at every step": rows([0.4, NAN], [-0.9, NAN], [0.2, NAN], [1.1, NAN]),
    "in the middle": rows([NAN, NAN], [NAN, 1.0], [0.7, NAN], [NAN, NAN]),
    "a whole step, then none": rows([0.5, -0.5], [NAN, NAN], [NAN, NAN], [NAN, NAN]),
    "nothing": rows([NAN, NAN], [NAN, NAN], [NAN, NAN], [NAN, NAN]),
}


@pytest.mark.parametrize("given", PATTERNS.values(), ids=PATTERNS.keys())
def test_moments_are_those_of_the_conditioned_gaussian(given):
    """Window 1, linear read-out: all targets of all steps are one Gaussian vector, conditioned on some of them."""
    model, first = gappy_model(), sequences(1, 0, 2, seed=3)
    mean, covariance = masked_linear.conditional(model, torch.cat((first[0], given)), len(given))
    found = draw(model, first, given.unsqueeze(0), n_paths=20_000)
    vectors = found.targets[0].flatten(1)
    # Between two values of the number of independent paths: the least that they are worth.
    error = 4.5 / found.effective.item() ** 0.5
    assert found.effective.item() > 5000
    deviation = covariance.diagonal().clamp(min=0).sqrt()
    assert ((vectors.mean(dim=0) - mean).abs() <= error * deviation + 1e-12).all()
    centred = vectors - mean
    # Var(uv) = Var(u) Var(v) + Cov(u, v)^2 of Gaussians with mean 0.
    allowed = (deviation[:, None] ** 2 * deviation**2 + covariance**2).sqrt()
    assert ((centred.T @ centred / len(vectors) - covariance).abs() <= error * allowed + 1e-12).all()
    known = ~given.isnan()
    assert (found.targets[0][:, known] == given[known]).all()


def test_a_random_walk_becomes_a_bridge():
    """X_t = X_{t-1} + e with a known end: mean x_0 + t (x_h - x_0) / h, covariance s (h - t) v / h for s <= t."""
    model = make_model(n_inputs=1, window=1, d_model=2, readout="linear", predict_change=True)
    with torch.no_grad():
        model.readout.projection.weight.zero_()
        model.readout.projection.bias.zero_()
    variance = model.observation.covariance.matrix().item()
    horizon, first = 10, torch.full((1, 1, 1), 2.0).double()
    end = 2 + 3 * (horizon * variance) ** 0.5  # three deviations away
    given = torch.full((1, horizon, 1), NAN).double()
    given[0, -1, 0] = end
    found = draw(model, first, given, n_paths=10_000)
    assert found.effective.item() > 3000
    steps = torch.arange(1, horizon + 1).double()
    mean = 2 + (end - 2) * steps / horizon
    covariance = variance * torch.minimum(steps[:, None], steps) * (horizon - torch.maximum(steps[:, None], steps))
    covariance = covariance / horizon
    paths, error = found.targets[0, :, :, 0], 4.5 / found.effective.item() ** 0.5
    deviation = covariance.diagonal().sqrt()
    assert ((paths.mean(dim=0) - mean).abs() <= error * deviation + 1e-12).all()
    centred = paths - mean
    allowed = (deviation[:, None] ** 2 * deviation**2 + covariance**2).sqrt()
    assert ((centred.T @ centred / len(paths) - covariance).abs() <= error * allowed + 1e-12).all()


def test_the_density_of_what_is_given_is_unbiased():
    model, first = gappy_model(), sequences(1, 0, 2, seed=3)
    given = PATTERNS["in the middle"]
    exact = masked_linear.log_likelihood(model, torch.cat((first[0], given))).detach()
    batch = 400
    # Runs are added by what the first one has found, so that only a single run is unbiased.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_RUNS", 1)
        found = draw(model, first.expand(batch, -1, -1), given.expand(batch, -1, -1), n_paths=100)
    ratio, error = mean_and_error((found.log_density - exact).exp())
    assert error < 0.02
    assert abs(ratio - 1) < 4 * error


@pytest.mark.parametrize("window", [None, 2])
def test_paths_of_a_model_with_memory_match_brute_force(window):
    """The past that a path remembers goes with it when particles are selected."""
    model = tiny_model(window=window)
    history = torch.tensor([0.5, -0.8, 1.3], dtype=torch.float64).unsqueeze(-1)
    given = {1: 1.2, 3: -0.6}
    futures, weights = weighted_futures(model, history, 4, n_samples=600_000, seed=0, given=given)
    futures, weights = torch.from_numpy(futures), torch.from_numpy(weights)
    runs, n_paths = 40, 500
    values = torch.full((runs, 4, 1), NAN).double()
    for step, value in given.items():
        values[:, step] = value
    found = draw(model, history.expand(runs, -1, -1), values, n_paths, n_particles=500)
    paths = found.targets[..., 0]
    moments = {"mean": lambda x: x, "square": lambda x: x**2, "lag 2": lambda x: x[..., 2:] * x[..., :-2]}
    for name, moment in moments.items():
        exact = (weights.unsqueeze(-1) * moment(futures)).sum(dim=0)
        exact_error = (weights.square().unsqueeze(-1) * (moment(futures) - exact).square()).sum(dim=0).sqrt()
        estimate, error = mean_and_error(moment(paths).mean(dim=1))
        assert (error < 0.03 * (1 + exact.abs())).all()
        distance = (estimate - exact).abs()
        # Self-normalised averages over M = 500 particles and more have a bias of the order of 1 / M.
        assert (distance <= 4.5 * (error.square() + exact_error.square()).sqrt() + 0.005).all(), name


def test_a_bad_guess_costs_particles_but_biases_nothing(monkeypatch):
    model, first = gappy_model(), sequences(1, 0, 2, seed=3)
    given = PATTERNS["the last step"].unsqueeze(0)
    mean, covariance = masked_linear.conditional(model, torch.cat((first[0], given[0])), 4)
    right = draw(model, first, given, n_paths=10_000).effective.item()

    class Misled(module.Lookahead):
        def __call__(self, step, x):
            return -2 * super().__call__(step, x)  # prefers those that go the wrong way

    monkeypatch.setattr(module, "Lookahead", Misled)
    found = draw(model, first, given, n_paths=10_000)
    assert found.effective.item() < right
    distance = (found.targets[0].flatten(1).mean(dim=0) - mean).abs()
    assert (distance <= 4.5 * (covariance.diagonal().clamp(min=0) / found.effective.item()).sqrt() + 1e-12).all()


def test_looking_ahead_keeps_more_paths_apart(monkeypatch):
    model = make_model(n_inputs=1, window=1, d_model=2, readout="linear", predict_change=True)
    with torch.no_grad():
        model.readout.projection.weight.zero_()
    first, given = torch.zeros(1, 1, 1).double(), torch.full((1, 12, 1), NAN).double()
    given[0, -1, 0] = 4 * (12 * model.observation.covariance.matrix().item()) ** 0.5
    with_guess = draw(model, first, given, n_paths=500).effective.item()
    monkeypatch.setattr(module.Lookahead, "__call__", lambda self, step, x: x.new_zeros(x.shape[:2]))
    without = draw(model, first, given, n_paths=500).effective.item()
    assert with_guess > 3 * without


def test_more_runs_where_paths_have_few_founders(monkeypatch):
    model, first = gappy_model(), sequences(1, 0, 2, seed=3)
    given = PATTERNS["one target at every step"].unsqueeze(0)
    many = draw(model, first, given, n_paths=300).effective.item()
    monkeypatch.setattr(module, "MOST_RUNS", 1)
    one = draw(model, first, given, n_paths=300).effective.item()
    assert one < many <= 300


def test_sequences_of_a_batch_have_what_is_given_to_them():
    model = linear_model(n_inputs=3)  # two targets and a known input
    history, known = sequences(3, 4, 3), sequences(3, 2, 1)
    given = torch.full((3, 3, 2), NAN).double()
    given[0, 2], given[1, 0, 1] = rows(0.3, 0.2), 1.0
    found = draw(model, history, given, 100, known=known)
    assert found.targets.shape == (3, 100, 3, 2)
    assert (found.targets[0, :, 2] == given[0, 2]).all()
    assert (found.targets[1, :, 0, 1] == 1).all()
    free = given.isnan().unsqueeze(1).expand_as(found.targets)
    assert found.targets[free].unique().numel() > 0.5 * free.sum()
    assert found.effective[2] == pytest.approx(100)  # nothing was given: as many as there are
    assert found.log_density[2].item() == pytest.approx(0, abs=1e-12)
    assert found.log_density[:2].isfinite().all()


def test_particles_stay_as_they_are():
    model, history = gappy_model(), sequences(1, 3, 2)
    settings = model.settings(20)
    state = filter_state(model, history, settings, as_generator(0))
    before = {name: tensor.clone() for name, tensor in state.named_tensors().items()}
    given = PATTERNS["in the middle"].unsqueeze(0)
    one, other = (
        conditioned_paths(model, settings, state, given, given.new_empty(1, 4, 0), 50, as_generator(1)).targets
        for _ in range(2)
    )
    assert torch.equal(one, other)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state.named_tensors().items())


def test_values_out_of_all_reach_are_an_error():
    model, history = gappy_model(), sequences(2, 1, 2)
    given = torch.full((2, 2, 2), NAN).double()
    given[1, 1, 0] = 1e200
    with pytest.raises(UnreachableError, match="sequence 1"):
        draw(model, history, given, 20)
