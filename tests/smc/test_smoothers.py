"""Smoothers as functions of ancestors and weights alone, against loops written apart."""

import itertools
import math

import numpy as np
import pytest
import torch

from smc_transformer import InferenceSettings
from smc_transformer.smc import RESAMPLERS, multinomial, systematic, trace_trajectories, unique_ancestors
from smc_transformer.smc.smoothers import SMOOTHERS, History, Request, SmoothedTrajectories, smoother
from smc_transformer.support.randomness import as_generator

LIMIT = 4.5
"""Standard errors: the largest of some hundred independent deviations exceeds it about once in a thousand times."""


def random_history(seed=0, batch=3, n_particles=5, n_steps=8, *, resample=systematic):
    """Weights at random, and parents drawn by them at every step, as a filter with ess_threshold = 1 does.

    Children inherit a trait that makes for large weights, so that later weights tell about earlier particles.
    """
    generator = as_generator(seed)
    trait = torch.linspace(-1, 1, n_particles, dtype=torch.float64).expand(batch, -1)
    ancestors = torch.arange(n_particles).view(1, -1, 1).repeat(batch, 1, n_steps)
    log_weights = torch.randn(batch, n_particles, n_steps, generator=generator, dtype=torch.float64)
    for step in range(n_steps):
        if step > 0:
            ancestors[:, :, step] = resample(log_weights[:, :, step - 1], n_particles, generator)
            trait = trait.gather(1, ancestors[:, :, step])
        log_weights[:, :, step] = (log_weights[:, :, step] + trait).log_softmax(dim=1)
    return History(ancestors, log_weights)


def smooth(name, history, lag, *, n_trajectories=None, seed=0, resample=systematic, future_density=None):
    return SMOOTHERS[name](history, Request(n_trajectories, lag, resample, future_density, as_generator(seed)))


def no_future(step, trajectories, lag):
    """The future tells nothing about the past."""
    return torch.zeros(*trajectories.shape[:2], 5, dtype=torch.float64)


# --- the registry ------------------------------------------------------------------------------------------------


@pytest.fixture
def registry():
    """The smoothers, put back afterwards."""
    before = dict(SMOOTHERS)
    yield SMOOTHERS
    SMOOTHERS.clear()
    SMOOTHERS.update(before)


def test_the_smoothers_of_the_folder_are_found_by_name():
    assert set(SMOOTHERS) == {"genealogy", "fixed_lag", "backward"}
    assert all(callable(function) for function in SMOOTHERS.values())


def test_a_new_smoother_is_a_decorated_function(registry):
    with pytest.raises(ValueError, match="smoother must be one of"):
        InferenceSettings(smoother="straight")

    @smoother
    def straight(history, request):
        """Every particle for itself."""
        trajectories = torch.arange(history.ancestors.shape[1]).view(1, -1, 1).expand_as(history.ancestors)
        return SmoothedTrajectories(trajectories, history.log_weights[:, :, -1], ancestral=False)

    assert registry["straight"] is straight
    assert InferenceSettings(smoother="straight").smoother == "straight"
    assert smooth("straight", random_history(), 1).trajectories[0, 3].tolist() == [3] * 8


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("name", ["forward", "Backward", "", None])
def test_the_settings_reject_names_that_no_smoother_has(name):
    with pytest.raises(ValueError, match="smoother must be one of"):
        InferenceSettings(smoother=name)


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("lag", [0, -1, 1.5, True, "5", None])
def test_the_settings_reject_lags_that_are_no_positive_whole_number(lag):
    with pytest.raises((ValueError, TypeError), match="smoothing_lag"):
        InferenceSettings(smoothing_lag=lag)


@pytest.mark.usefixtures("without_shape_checks")
def test_the_settings_keep_smoother_and_lag():
    config = InferenceSettings(smoother="backward", smoothing_lag=np.int64(3))
    assert InferenceSettings.from_dict(config.to_dict()) == config
    assert (config.smoother, config.smoothing_lag, type(config.smoothing_lag)) == ("backward", 3, int)
    assert (InferenceSettings().smoother, InferenceSettings().smoothing_lag) == ("genealogy", 5)


# --- what all of them promise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["genealogy", "fixed_lag", "backward"])
@pytest.mark.parametrize("n_trajectories", [None, 1, 3, 5, 11])
def test_trajectories_have_particles_and_weights_that_sum_to_one(name, n_trajectories):
    history = random_history()
    trajectories, log_weights, ancestral = smooth(
        name, history, 2, n_trajectories=n_trajectories, future_density=no_future
    )
    n_expected = 5 if n_trajectories is None else n_trajectories
    assert (trajectories.shape, log_weights.shape) == ((3, n_expected, 8), (3, n_expected))
    assert (trajectories.dtype, log_weights.dtype) == (torch.long, history.log_weights.dtype)
    assert ((trajectories >= 0) & (trajectories < 5)).all()
    torch.testing.assert_close(log_weights.exp().sum(dim=1), torch.ones(3, dtype=torch.float64))
    assert ancestral == (name == "genealogy")
    if name != "genealogy" or n_trajectories is not None:
        torch.testing.assert_close(log_weights, torch.full_like(log_weights, -math.log(n_expected)))


@pytest.mark.parametrize("name", ["genealogy", "fixed_lag", "backward"])
@pytest.mark.parametrize("resample", RESAMPLERS.values(), ids=RESAMPLERS.keys())
def test_trajectories_end_where_the_last_weights_say(name, resample):
    history = random_history()
    trajectories = smooth(
        name, history, 2, n_trajectories=7, resample=resample, seed=4, future_density=no_future
    ).trajectories
    assert torch.equal(trajectories[:, :, -1], resample(history.log_weights[:, :, -1], 7, as_generator(4)))


@pytest.mark.parametrize("name", ["genealogy", "fixed_lag", "backward"])
def test_a_single_step_and_a_single_particle(name):
    def future_density(step, trajectories, lag):
        return torch.zeros(*trajectories.shape[:2], 1, dtype=torch.float64)

    one_step = smooth(name, random_history(n_steps=1), 1, n_trajectories=4, future_density=future_density)
    assert one_step.trajectories.shape == (3, 4, 1)
    one_particle = random_history(n_particles=1)
    assert smooth(name, one_particle, 2, future_density=future_density).trajectories.tolist() == [[[0] * 8]] * 3


@pytest.mark.parametrize("name", ["fixed_lag", "backward"])
def test_the_generator_determines_the_trajectories(name):
    history = random_history()
    first, again, other = (
        smooth(name, history, 2, n_trajectories=9, seed=seed, future_density=no_future) for seed in (7, 7, 8)
    )
    assert torch.equal(first.trajectories, again.trajectories)
    assert not torch.equal(first.trajectories, other.trajectories)


# --- fixed lag ---------------------------------------------------------------------------------------------------


def carried_by_hand(ancestors, lag):
    """What each place holds after the last step, moved slot by slot: (particle, time) for one sequence.

    At each step a child takes its parent's particle in the `lag` latest slots and leaves older slots as they are.
    """
    n_particles, n_steps = ancestors.shape
    held = [[None] * n_steps for _ in range(n_particles)]
    for step in range(n_steps):
        before = [list(slots) for slots in held]
        for child in range(n_particles):
            parent = int(ancestors[child, step])
            for slot in range(step):
                age = step - slot
                held[child][slot] = before[parent][slot] if age <= lag else before[child][slot]
            held[child][step] = child
    return np.array(held)


def fixed_lag_by_hand(ancestors, lag, ends, carry=carried_by_hand):
    """One trajectory for each end; slots that are too old for the last weights stay where they are."""
    held = carry(ancestors, lag)
    n_steps = ancestors.shape[1]
    trajectories = np.empty_like(held)
    for trajectory, end in enumerate(ends):
        for slot in range(n_steps):
            age = n_steps - slot
            trajectories[trajectory, slot] = held[end, slot] if age <= lag else held[trajectory, slot]
    return trajectories


def assert_fixed_lag_is_the_loop(lag, seed, resample, **loop):
    history = random_history(seed, resample=resample)
    trajectories = smooth("fixed_lag", history, lag, seed=seed, resample=resample).trajectories
    ends = resample(history.log_weights[:, :, -1], 5, as_generator(seed))
    for sequence in range(3):
        by_hand = fixed_lag_by_hand(history.ancestors[sequence].numpy(), lag, ends[sequence].tolist(), **loop)
        np.testing.assert_array_equal(trajectories[sequence].numpy(), by_hand)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lag", [1, 2, 3, 7, 8, 20])
@pytest.mark.parametrize("resample", [systematic, multinomial])
def test_fixed_lag_agrees_with_moving_slots_one_by_one(lag, seed, resample):
    assert_fixed_lag_is_the_loop(lag, seed, resample)


def carried_for_good(ancestors, lag):
    """The mistake: old slots are resampled too."""
    return carried_by_hand(ancestors, lag=ancestors.shape[1])


def test_a_loop_that_resamples_old_slots_is_another():
    with pytest.raises(AssertionError, match="not equal"):
        assert_fixed_lag_is_the_loop(2, 0, systematic, carry=carried_for_good)


@pytest.mark.parametrize("n_trajectories", [None, 3, 5, 12])
@pytest.mark.parametrize("lag", [8, 9, 100])
def test_a_lag_that_reaches_the_start_gives_the_ancestral_trajectories(lag, n_trajectories):
    history = random_history()
    trajectories, _, ancestral = smooth("fixed_lag", history, lag, n_trajectories=n_trajectories, seed=3)
    drawn = smooth("genealogy", history, lag, n_trajectories=n_trajectories or 5, seed=3)
    assert ancestral
    assert torch.equal(trajectories, drawn.trajectories)


def test_a_lag_that_does_not_reach_the_start_makes_no_ancestral_trajectories():
    assert not smooth("fixed_lag", random_history(), 7).ancestral


@pytest.mark.parametrize("n_trajectories", [3, 12])
def test_another_number_of_trajectories_takes_whole_old_parts(n_trajectories):
    """The recent part of a trajectory is that of its end, the old part that of some place."""
    lag = 3
    history = random_history()
    trajectories = smooth("fixed_lag", history, lag, n_trajectories=n_trajectories, seed=2).trajectories.numpy()
    ends = systematic(history.log_weights[:, :, -1], n_trajectories, as_generator(2)).numpy()
    for sequence in range(3):
        held = carried_by_hand(history.ancestors[sequence].numpy(), lag)
        old_parts = {tuple(place[:-lag]) for place in held}
        for trajectory, end in zip(trajectories[sequence], ends[sequence], strict=True):
            assert tuple(trajectory[-lag:]) == tuple(held[end, -lag:])
            assert tuple(trajectory[:-lag]) in old_parts


def ancestor_at(ancestors, step, slot):
    """For each particle of `step`, its ancestor at `slot`."""
    return trace_trajectories(ancestors[:, :, : step + 1])[:, :, slot]


def distribution_error(lag, n_trajectories=None, n_runs=20_000, resample=systematic, name="fixed_lag"):
    """The largest deviation of any slot from the weights `lag` observations later, in standard errors.

    With index t for X_{t+1}, slot s sees the weights of index s + lag - 1, or the last ones. Given the genealogy
    so far, its particle is j with the probability that these weights give to the descendants of j.
    """
    n_particles, n_steps = 4, 5
    history = random_history(9, n_runs, n_particles, n_steps, resample=resample)
    trajectories = smooth(name, history, lag, n_trajectories=n_trajectories, resample=resample).trajectories
    worst = 0.0
    for slot in range(n_steps):
        step = min(slot + lag - 1, n_steps - 1)
        descent = torch.nn.functional.one_hot(ancestor_at(history.ancestors, step, slot), n_particles)
        expected = (history.log_weights[:, :, step].exp().unsqueeze(-1) * descent).sum(dim=1)
        found = torch.nn.functional.one_hot(trajectories[:, :, slot], n_particles).double().mean(dim=1)
        deviation = found - expected
        error = deviation.std(dim=0) / n_runs**0.5
        worst = max(worst, float((deviation.mean(dim=0).abs() / error).max()))
    return worst


@pytest.mark.parametrize("lag", [1, 2, 3, 5])
@pytest.mark.parametrize("n_trajectories", [None, 2])
def test_the_distribution_of_every_slot_is_that_of_the_weights_of_its_lag(lag, n_trajectories):
    assert distribution_error(lag, n_trajectories) < LIMIT


@pytest.mark.parametrize("resample", RESAMPLERS.values(), ids=RESAMPLERS.keys())
def test_the_distribution_of_every_slot_under_every_resampling_scheme(resample):
    assert distribution_error(2, resample=resample) < LIMIT


def test_the_distribution_notices_that_old_slots_are_resampled():
    """As the genealogy does, whose slots know all later weights."""
    assert distribution_error(1, name="genealogy") > 2 * LIMIT


def test_fixed_lag_keeps_more_particles_than_the_genealogy():
    history = random_history(1, batch=50, n_particles=20, n_steps=40)
    counts = {
        lag: unique_ancestors(smooth("fixed_lag", history, lag).trajectories).double().mean(dim=0) for lag in (1, 5, 40)
    }
    old = slice(5, 20)
    assert (counts[1][old] > counts[5][old]).all()
    assert (counts[5][old] > 2 * counts[40][old]).all()
    assert (counts[5][old].max() - counts[5][old].min()) < 1.5  # the past does not degenerate any further


def test_the_distribution_of_every_slot_without_resampling():
    """With ess_threshold < 1 weights are carried on, and an old slot must be drawn by them when it is left alone."""
    n_runs, weights = 4000, torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    ancestors = torch.arange(3).view(1, 3, 1).expand(n_runs, 3, 4).contiguous()
    never = torch.zeros(n_runs, 4, dtype=torch.bool)
    history = History(ancestors, weights.log().view(1, 3, 1).expand(n_runs, 3, 4).contiguous(), never)
    trajectories = smooth("fixed_lag", history, 1, n_trajectories=2).trajectories
    shares = torch.nn.functional.one_hot(trajectories, 3).double().mean(dim=(0, 1))
    error = (0.25 / (2 * n_runs)) ** 0.5
    assert ((shares - weights).abs() < LIMIT * error).all()


# --- backward simulation -----------------------------------------------------------------------------------------


def test_backward_needs_the_density_of_the_future():
    with pytest.raises(ValueError, match="needs `future_density`"):
        smooth("backward", random_history(), 2)


def test_backward_asks_about_the_trajectories_it_has_chosen_so_far():
    history, asked = random_history(), []

    def future_density(step, trajectories, lag):
        asked.append((step, lag, trajectories.clone()))
        return no_future(step, trajectories, lag)

    trajectories = smooth("backward", history, 3, n_trajectories=4, future_density=future_density).trajectories
    assert [(step, lag) for step, lag, _ in asked] == [(step, 3) for step in (6, 5, 4, 3, 2, 1, 0)]
    for step, _, seen in asked:
        assert torch.equal(seen[:, :, step + 1 :], trajectories[:, :, step + 1 :])


def test_backward_follows_a_future_that_leaves_no_choice():
    history = random_history()
    wanted = torch.randint(5, (3, 6, 8), generator=as_generator(1))

    def future_density(step, trajectories, lag):
        only = torch.full((3, 6, 5), -torch.inf, dtype=torch.float64)
        return only.scatter(2, wanted[:, :, step, None], 0.0)

    trajectories = smooth("backward", history, 1, n_trajectories=6, future_density=future_density).trajectories
    assert torch.equal(trajectories[:, :, :-1], wanted[:, :, :-1])


def test_backward_has_the_distribution_of_its_weights():
    """On a chain of 3 particles and 3 steps every trajectory's probability is known."""
    generator = as_generator(5)
    weights = torch.randn(3, 3, generator=generator, dtype=torch.float64).softmax(dim=0)  # (particle, time)
    future = torch.rand(2, 3, 3, generator=generator, dtype=torch.float64) + 0.1  # (step, next particle, particle)
    n_runs, n_trajectories = 500, 40
    ancestors = torch.arange(3).view(1, 3, 1).expand(n_runs, 3, 3).contiguous()
    history = History(ancestors, weights.log().expand(n_runs, 3, 3))

    def future_density(step, trajectories, lag):
        return future[step].log()[trajectories[:, :, step + 1]]

    trajectories = smooth(
        "backward", history, 1, n_trajectories=n_trajectories, resample=multinomial, future_density=future_density
    ).trajectories
    n_drawn = n_runs * n_trajectories
    for trajectory in itertools.product(range(3), repeat=3):
        probability = float(weights[trajectory[2], 2])
        for step in (1, 0):
            options = weights[:, step] * future[step, trajectory[step + 1]]
            probability *= float(options[trajectory[step]] / options.sum())
        found = (trajectories == torch.tensor(trajectory)).all(dim=-1).double().mean().item()
        assert abs(found - probability) < LIMIT * (probability * (1 - probability) / n_drawn) ** 0.5
