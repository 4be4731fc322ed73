"""The running average of weights: what a naive average says, and the model's own weights back afterwards."""

import math

import pytest
import torch
from helpers.models import assert_same, make_model, sequences, weights
from helpers.watched_goals import WatchedGoal

from smc_transformer.learning import fit
from smc_transformer.learning.averaging import WeightAverage

TRAIN, VALIDATION = sequences(20, 6, seed=1), sequences(8, 6, seed=2)
SETTINGS = {"epochs": 3, "batch_size": 6, "validation_particles": 8, "seed": 3, "progress": False}


def small_model(**settings):
    return make_model(d_model=4, d_ff=4, n_particles=5, **settings)


def naive_average(start, snapshots, keep):
    """One number at a time. Infinite numbers have no average: the first finite one replaces them."""
    average = {name: value.clone() for name, value in start.items()}
    for step, snapshot in enumerate(snapshots, start=1):
        kept = keep if step / (step + 10) > keep else step / (step + 10)
        for name, value in snapshot.items():
            old = average[name].flatten().tolist()
            new = value.flatten().tolist()
            mixed = [kept * a + (1 - kept) * b for a, b in zip(old, new, strict=True)]
            finite = all(math.isfinite(number) for number in old)
            average[name] = torch.tensor(mixed if finite else new, dtype=value.dtype).view(value.shape)
    return average


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("settings", [{"noise_learning": "em"}, {"observation": "student_t"}], ids=str)
def test_the_average_of_a_training_is_the_naive_one(keep, settings):
    """What EM learns is a part of it: latent and observation covariances, correlations and bounds.

    An epoch for each step: validation sees the average, and after the epoch the model has its own weights.
    """
    model, goal = small_model(**settings), WatchedGoal()
    start, snapshots = weights(model), []
    every_step = {**SETTINGS, "epochs": 12, "steps_per_epoch": 1, "averaging": keep}
    fit(model, TRAIN, VALIDATION, goal=goal, on_epoch=lambda _: snapshots.append(weights(model)), **every_step)
    averages = [call.weights for call in goal.validations]
    assert len(snapshots) == len(averages) == 12
    for number in range(1, 13):
        expected = naive_average(start, snapshots[:number], keep)
        for name, value in averages[number - 1].items():
            torch.testing.assert_close(value, expected[name], msg=lambda text, of=name: f"{of}: {text}")
    by_em = [name for name in start if "covariance" in name or "correlation" in name or "lowest" in name]
    assert by_em
    assert all(value.isfinite().all() for value in averages[-1].values())
    # Without validation the model ends at its last average.
    unvalidated = small_model(**settings)
    fit(unvalidated, TRAIN, averaging=keep, **SETTINGS)
    assert_same(weights(unvalidated), averages[-1])


def test_the_start_is_soon_forgotten():
    """A step keeps at most p / (p + 10) of the old: after 100 steps nothing is left of the start."""
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(1000.0)
    average = WeightAverage(model, keep=0.9999)
    with torch.no_grad():
        model.weight.fill_(1.0)
    for step in range(1, 101):
        average.update(step)
    assert float(average.weights["weight"]) == pytest.approx(1.0, abs=1e-6)


def test_the_average_is_a_copy_of_its_own():
    model = torch.nn.Linear(2, 2)
    average = WeightAverage(model, keep=0.5)
    before = {name: value.clone() for name, value in average.weights.items()}
    with torch.no_grad():
        model.weight.add_(1.0)
    assert_same(average.weights, before)
    average.update(1)
    held = average.weights["weight"].clone()
    with average.applied(), torch.no_grad():
        model.weight.add_(5.0)
    assert torch.equal(average.weights["weight"], held)


def test_whole_numbers_are_taken_as_they_are():
    model = torch.nn.BatchNorm1d(2)
    average = WeightAverage(model, keep=0.9)
    model.num_batches_tracked.fill_(7)
    average.update(5)
    assert average.weights["num_batches_tracked"] == 7


def test_the_average_is_applied_and_the_own_weights_come_back():
    model = small_model(observation="heteroscedastic")
    average = WeightAverage(model, keep=0.5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    average.update(1)
    own = weights(model)
    with average.applied():
        assert_same(weights(model), average.weights)
        assert not torch.equal(model.readout.projection.weight, own["readout.projection.weight"])
    assert_same(weights(model), own)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_own_weights_come_back_after_an_exception(error):
    model = small_model()
    average = WeightAverage(model, keep=0.5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    own = weights(model)
    with pytest.raises(error), average.applied():
        raise error
    assert_same(weights(model), own)


def test_parameters_are_the_same_objects_before_during_and_after():
    """An optimiser holds on to them."""
    model = small_model()
    average = WeightAverage(model, keep=0.5)
    before = [id(parameter) for parameter in model.parameters()]
    with average.applied():
        assert [id(parameter) for parameter in model.parameters()] == before
    assert [id(parameter) for parameter in model.parameters()] == before


def test_the_average_is_what_is_validated_and_kept():
    model, goal, trained = small_model(), WatchedGoal(), []
    settings = {**SETTINGS, "averaging": 0.9, "on_epoch": lambda report: trained.append(weights(model))}
    history = fit(model, TRAIN, VALIDATION, goal=goal, **settings)
    assert [report.validation_loss for report in history] == [call.result for call in goal.validations]
    best = min(range(3), key=lambda epoch: history[epoch].validation_loss)
    assert_same(weights(model), goal.validations[best].weights)
    for call, own in zip(goal.validations, trained, strict=True):
        assert not torch.equal(call.weights["readout.projection.weight"], own["readout.projection.weight"])


def test_averaging_does_not_change_what_is_trained():
    """The average looks on: training losses are those of a run without it."""
    plain, averaged = small_model(), small_model()
    one = fit(plain, TRAIN, VALIDATION, **SETTINGS)
    other = fit(averaged, TRAIN, VALIDATION, averaging=0.9, **SETTINGS)
    assert [report.training_loss for report in one] == [report.training_loss for report in other]
    assert [report.validation_loss for report in one] != [report.validation_loss for report in other]


def test_keeping_nothing_is_no_averaging():
    plain, averaged = small_model(), small_model()
    assert fit(plain, TRAIN, VALIDATION, **SETTINGS) == fit(averaged, TRAIN, VALIDATION, averaging=0.0, **SETTINGS)
    assert_same(weights(plain), weights(averaged))


@pytest.mark.parametrize("averaging", [-0.1, 1.1, math.nan])
def test_impossible_shares_are_rejected(averaging):
    with pytest.raises(ValueError, match="averaging must be between 0 and 1"):
        fit(small_model(), TRAIN, averaging=averaging, **SETTINGS)
