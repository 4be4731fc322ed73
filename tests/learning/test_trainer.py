"""The training loop: reproducible, resumable, honest about its best epoch."""

import functools
import json
import os
import tempfile

import pytest
import torch
from helpers.models import assert_same, make_model, sequences, weights
from helpers.watched_goals import InterruptedBookkeeping, WatchedGoal, interrupted_goal
from safetensors.torch import save_file

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import (
    ForecastScore,
    Likelihood,
    Sampling,
    Trainer,
    constant,
    fit,
    negative_log_likelihood,
    training_step,
    warmup_cosine,
    warmup_inverse_sqrt,
)
from smc_transformer.learning.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from smc_transformer.learning.optimiser import Adam
from smc_transformer.nn.observation import GaussianObservation

TRAIN, VALIDATION = sequences(20, 6, seed=1), sequences(8, 6, seed=2)
SETTINGS = {"epochs": 4, "batch_size": 6, "validation_particles": 8, "seed": 3, "progress": False}


def small_model(**settings):
    return make_model(d_model=4, d_ff=4, n_particles=5, **settings)


class SpyOptimiser(torch.optim.SGD):
    """SGD that writes down the learning rates and gradient norm of every step."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.rates, self.norms = [], []

    def step(self, *arguments, **options):
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self.rates.append([group["lr"] for group in self.param_groups])
        self.norms.append(float(torch.cat([parameter.grad.flatten() for parameter in parameters]).norm()))
        return super().step(*arguments, **options)


def fit_with_spy(**settings):
    """Two epochs of four steps with an optimiser that is watched."""
    optimisers = []

    def make(parameters, rate):
        optimisers.append(SpyOptimiser(parameters, lr=rate))
        return optimisers[-1]

    fit(small_model(), TRAIN, optimiser=make, **{**SETTINGS, "epochs": 2, **settings})
    return optimisers[0]


def test_same_seed_same_numbers_and_another_seed_others():
    models = [small_model(), small_model(), small_model()]
    histories = [
        fit(model, TRAIN, VALIDATION, **{**SETTINGS, "seed": seed})
        for model, seed in zip(models, (3, 3, 4), strict=True)
    ]
    assert_same(weights(models[0]), weights(models[1]))
    assert histories[0] == histories[1]
    assert histories[0] != histories[2]


def test_global_random_state_is_neither_used_nor_changed():
    model = small_model()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fit(model, TRAIN, VALIDATION, **SETTINGS)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert fit(small_model(), TRAIN, VALIDATION, **SETTINGS) == first


def test_seeded_weights_do_not_depend_on_the_global_state():
    models = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        models.append(SMCTransformer(SMCTransformerConfig(), generator=7))
    assert_same(weights(models[0]), weights(models[1]))


class Interrupt:
    """Behaves like the user who presses Ctrl-C at the n-th call."""

    def __init__(self, at):
        self.calls_left = at

    def __call__(self, step):
        self.calls_left -= 1
        if self.calls_left == 0:
            raise KeyboardInterrupt
        return 1.0


@pytest.mark.parametrize("noise_learning", ["gradient", "em"])
@pytest.mark.parametrize("interrupted_at", [2, 4, 5, 11])
def test_interrupted_training_resumes_to_the_same_result(tmp_path, interrupted_at, noise_learning):
    """4 steps an epoch: interrupted within an epoch, in its last step, in the first of the next, and late."""
    straight, resumed = small_model(noise_learning=noise_learning), small_model(noise_learning=noise_learning)
    expected = fit(straight, TRAIN, VALIDATION, **SETTINGS)
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(resumed, TRAIN, VALIDATION, checkpoint=path, schedule=Interrupt(interrupted_at), **SETTINGS)
    assert load_checkpoint(path).state["step"] == interrupted_at - 1
    fresh = small_model(seed=99, noise_learning=noise_learning)  # as in a new process: nothing but the file is left
    assert fit(fresh, TRAIN, VALIDATION, checkpoint=path, **SETTINGS) == expected
    assert_same(weights(fresh), weights(straight))


def test_a_finished_run_is_not_trained_again(tmp_path):
    path = tmp_path / "run.safetensors"
    first, second = small_model(), small_model(seed=99)
    history = fit(first, TRAIN, VALIDATION, checkpoint=path, **SETTINGS)
    assert fit(second, TRAIN, VALIDATION, checkpoint=path, schedule=Interrupt(1), **SETTINGS) == history
    assert_same(weights(first), weights(second))


def test_model_ends_at_its_best_validation_epoch_and_patience_ends_training():
    seen = {}
    model = small_model()

    def remember(report):
        seen[report.epoch] = (report.validation_loss, weights(model))

    # A learning rate that makes things worse after a while.
    trainer = Trainer(
        model, **{**SETTINGS, "epochs": 30}, patience=2, learning_rate=0.5, on_epoch=remember, clip_norm=None
    )
    history = trainer.fit(TRAIN, VALIDATION)
    best = min(history, key=lambda report: report.validation_loss).epoch
    assert len(history) == best + 2 < 30
    assert_same(weights(model), seen[best][1])


def test_weights_that_training_makes_worse_are_kept_where_the_start_counts():
    model = small_model()
    before, goal = weights(model), WatchedGoal()
    settings = {**SETTINGS, "learning_rate": 5.0, "clip_norm": None, "goal": goal}
    history = fit(model, TRAIN, VALIDATION, start_counts=True, **settings)
    start, *later = (call.result for call in goal.validations)
    assert [report.validation_loss for report in history] == later
    assert start < min(later)
    assert_same(weights(model), before)
    # Without it, the best of those that are worse.
    other = small_model()
    assert fit(other, TRAIN, VALIDATION, **settings) == history
    assert not torch.equal(other.readout.projection.weight, before["readout.projection.weight"])


def test_a_start_that_counts_changes_nothing_where_training_makes_it_better():
    one, two = small_model(), small_model()
    history = fit(one, TRAIN, VALIDATION, **SETTINGS)
    assert fit(two, TRAIN, VALIDATION, start_counts=True, **SETTINGS) == history
    assert_same(weights(one), weights(two))


def test_patience_counts_from_the_start_if_that_is_best():
    settings = {**SETTINGS, "epochs": 6, "learning_rate": 5.0, "clip_norm": None}
    assert len(fit(small_model(), TRAIN, VALIDATION, start_counts=True, patience=2, **settings)) == 2


def test_fewer_trajectories_than_particles_also_learn():
    model = small_model()
    history = fit(model, TRAIN, n_trajectories=2, **{**SETTINGS, "epochs": 15})
    assert history[-1].training_loss < history[0].training_loss


def test_all_sequences_are_used_in_every_epoch():
    goal = WatchedGoal()
    fit(small_model(), TRAIN, goal=goal, **{**SETTINGS, "epochs": 2})
    batches = [call.x for call in goal.batches]
    assert [len(batch) for batch in batches] == [6, 6, 6, 2] * 2
    for epoch in (batches[:4], batches[4:]):
        assert set(torch.cat(epoch)[:, 0, 0].tolist()) == set(TRAIN[:, 0, 0].tolist())
    assert not torch.equal(batches[0], batches[4])  # shuffled anew


def test_any_optimiser_can_be_used():
    model = small_model()
    before = weights(model)
    fit(model, TRAIN, optimiser=lambda parameters, rate: torch.optim.SGD(parameters, lr=rate), **SETTINGS)
    assert not torch.equal(before["readout.projection.weight"], model.readout.projection.weight)


# --- settings take effect -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"em_step_size": lambda p: 1 / (2 + p)}], ids=["default", "own"])
def test_em_steps_once_a_batch_with_its_statistics_and_step_sizes_that_go_on_over_epochs(settings):
    """One target: the covariance is a number, and so is the second moment of a batch."""
    model, goal = small_model(), WatchedGoal()
    fit(model, TRAIN, goal=goal, **{**SETTINGS, "epochs": 2}, **settings)
    step_size = settings.get("em_step_size", lambda p: p**-0.6)
    roots = [call.weights["observation.covariance.factor"] for call in goal.batches]
    variances = [float(root) ** 2 for root in [*roots, model.observation.covariance.factor]]
    assert len(variances) == 9
    for p, call in enumerate(goal.batches, start=1):
        moment, before, after = float(call.result.statistics.observation), variances[p - 1], variances[p]
        assert after == pytest.approx((1 - step_size(p)) * before + step_size(p) * moment)


def test_without_an_em_step_size_there_is_no_em():
    model = small_model(noise_learning="em")
    before = weights(model)
    fit(model, TRAIN, em_step_size=None, **SETTINGS)
    for name, value in weights(model).items():
        assert torch.equal(value, before[name]) == ("covariance" in name), name


def test_schedule_multiplies_the_learning_rate_and_goes_on_over_epochs():
    spy = fit_with_spy(learning_rate=0.01, schedule=lambda step: 1 / step)
    assert spy.rates == [[pytest.approx(0.01 / step)] for step in range(1, 9)]


def test_a_schedule_of_zero_moves_nothing_but_what_em_learns():
    model = small_model()
    before = weights(model)
    fit(model, TRAIN, schedule=lambda step: 0.0, **SETTINGS)
    changed = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    assert changed == {"observation.covariance.factor"}


def test_learning_rates_of_groups_keep_their_ratio():
    optimisers = []

    def make(parameters, rate):
        first, *others = parameters
        groups = [{"params": [first], "lr": 10 * rate}, {"params": others}]
        optimisers.append(SpyOptimiser(groups, lr=rate))
        return optimisers[-1]

    settings = {**SETTINGS, "epochs": 2, "learning_rate": 0.01, "schedule": lambda step: 0.5**step}
    fit(small_model(), TRAIN, optimiser=make, **settings)
    expected = [[pytest.approx(0.1 * 0.5**step), pytest.approx(0.01 * 0.5**step)] for step in range(1, 9)]
    assert optimisers[0].rates == expected


@pytest.mark.parametrize("clip_norm", [0.01, 0.1])
def test_gradients_are_clipped_to_the_norm(clip_norm):
    free, clipped = fit_with_spy(clip_norm=None), fit_with_spy(clip_norm=clip_norm)
    assert max(free.norms) > clip_norm
    assert max(clipped.norms) <= clip_norm * (1 + 1e-9)
    assert clipped.norms[0] == pytest.approx(min(clip_norm, free.norms[0]), rel=1e-4)


def test_gradients_within_the_norm_are_left_alone():
    free, unclipped = fit_with_spy(clip_norm=None), fit_with_spy(clip_norm=1e6)
    assert free.norms == unclipped.norms


@pytest.mark.parametrize("n_particles", [None, 7])
@pytest.mark.parametrize("n_trajectories", [None, 2, 9])
def test_training_uses_its_numbers_of_particles_and_trajectories(n_particles, n_trajectories):
    model, goal, settings = small_model(), WatchedGoal(), {**SETTINGS, "epochs": 2}
    fit(model, TRAIN, VALIDATION, goal=goal, n_particles=n_particles, n_trajectories=n_trajectories, **settings)
    expected = Sampling(n_particles or 5, n_trajectories, generator=None)
    assert [call.sampling._replace(generator=None) for call in goal.batches] == [expected] * 8


@pytest.mark.parametrize("n_trajectories", [None, 2, 9])
def test_the_likelihood_of_a_batch_is_that_of_a_training_step(n_trajectories):
    """With as many particles and trajectories: others would draw other numbers."""
    model, sizes = small_model(noise_learning="em"), {"n_particles": 7, "n_trajectories": n_trajectories}
    step = training_step(model, TRAIN, generator=torch.Generator().manual_seed(1), **sizes)
    model.zero_grad()
    (-step.objective.sum() / (20 * 6)).backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.gradient_parameters().items()}
    model.zero_grad()
    report = Likelihood().accumulate(model, TRAIN, Sampling(generator=torch.Generator().manual_seed(1), **sizes))
    assert (report.loss, report.n_terms) == (pytest.approx(-step.log_likelihood.sum().item()), 20 * 6)
    torch.testing.assert_close(report.statistics.observation, step.statistics.observation)
    torch.testing.assert_close(report.statistics.latent, step.statistics.latent)
    for name, parameter in model.gradient_parameters().items():
        torch.testing.assert_close(parameter.grad, expected[name])


@pytest.mark.parametrize("encoder", ["linear", "gru", "transformer"])
def test_a_step_without_gaps_embeds_once_and_predicts_nothing(monkeypatch, encoder):
    model, n_calls = small_model(encoder=encoder, observation="student_t"), []
    encode = type(model.encoder).encode
    monkeypatch.setattr(type(model.encoder), "encode", lambda *inputs: (n_calls.append(1), encode(*inputs))[1])
    expected = model.filter(TRAIN, generator=1).log_likelihood
    n_calls.clear()
    monkeypatch.setattr(type(model.observation), "mixture", None)
    step = training_step(model, TRAIN, generator=1)
    assert len(n_calls) == 1
    assert torch.equal(step.log_likelihood, expected)


@pytest.mark.parametrize("n_particles", [None, 7])
@pytest.mark.parametrize("validation_particles", [None, 11])
def test_validation_uses_its_number_of_particles(n_particles, validation_particles):
    goal = WatchedGoal()
    settings = {**SETTINGS, "epochs": 2, "n_particles": n_particles, "validation_particles": validation_particles}
    model = small_model()
    fit(model, TRAIN, VALIDATION, goal=goal, **settings)
    expected = validation_particles or 2 * (n_particles or 5)
    assert [call.sampling.n_particles for call in goal.validations] == [expected] * 2
    first, second = (torch.Generator().manual_seed(1) for _ in range(2))
    loss = Likelihood().validate(model, VALIDATION, Sampling(expected, generator=first))
    assert loss == negative_log_likelihood(model, VALIDATION, n_particles=expected, generator=second)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_checkpoints_are_saved_as_often_as_asked_for(tmp_path, seconds):
    path, found = tmp_path / "run.safetensors", []

    def look(*_):
        state = load_checkpoint(path).state if path.exists() else {"step": 0, "history": []}
        found.append((state["step"], len(state["history"])))

    settings = {**SETTINGS, "epochs": 2, "checkpoint_seconds": seconds, "on_epoch": look}
    fit(small_model(), TRAIN, VALIDATION, checkpoint=path, goal=WatchedGoal(before=look), **settings)
    # Before each of four steps, before the validation, and after the epoch.
    often = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (8, 2)]
    seldom = [(0, 0)] * 5 + [(4, 1)] * 6 + [(8, 2)]
    assert found == (often if seconds == 0 else seldom)


def test_training_is_in_training_mode_validation_in_evaluation_mode_and_so_is_the_result():
    model, modes = small_model(), []

    def note(name, _=None):
        modes.append((name, model.training))
        return 0.5

    model.eval()
    settings = {**SETTINGS, "epochs": 2, "em_step_size": lambda p: note("em")}
    fit(model, TRAIN, VALIDATION, goal=WatchedGoal(before=note), **settings)
    assert modes == ([("accumulate", True), ("em", True)] * 4 + [("validate", False)]) * 2
    assert not model.training


def test_an_interrupted_model_is_left_in_evaluation_mode():
    model = small_model()
    with pytest.raises(KeyboardInterrupt):
        fit(model, TRAIN, schedule=Interrupt(2), **SETTINGS)
    assert not model.training


# --- interruptions and resumption ---------------------------------------------------------------------------------


def interrupt_once(monkeypatch, module, name, *, at, after=False):
    """The n-th call of a function is interrupted, before it does anything or after it has."""
    honest, calls_left = getattr(module, name), [at]

    def interrupted(*arguments, **options):
        calls_left[0] -= 1
        if calls_left[0] == 0:
            if after:
                honest(*arguments, **options)
            raise KeyboardInterrupt
        return honest(*arguments, **options)

    monkeypatch.setattr(module, name, interrupted)


OPTIMISERS = {
    "Adam": None,
    "SGD": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate),
    "SGD with momentum": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
    "AdamW": lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate),
    "RMSprop": lambda parameters, rate: torch.optim.RMSprop(parameters, lr=rate),
    "Adagrad": lambda parameters, rate: torch.optim.Adagrad(parameters, lr=rate),
}


@functools.cache
def uninterrupted(optimiser):
    """History and final weights of a run that nobody disturbs."""
    model = small_model()
    history = fit(model, TRAIN, VALIDATION, **{**SETTINGS, "epochs": 3}, optimiser=OPTIMISERS[optimiser])
    return history, weights(model)


def assert_resumes_to_the_same_result(path, optimiser="Adam", interrupted_settings=None, **settings):
    """An interrupted fit, then another one in what might be a new process, against one without interruption."""
    settings = {**SETTINGS, "epochs": 3, "checkpoint": path, "optimiser": OPTIMISERS[optimiser], **settings}
    with pytest.raises(KeyboardInterrupt):
        fit(small_model(), TRAIN, VALIDATION, **settings, **(interrupted_settings or {}))
    fresh = small_model(seed=99)
    history = fit(fresh, TRAIN, VALIDATION, **settings)
    expected_history, expected_weights = uninterrupted(optimiser)
    assert history == expected_history
    assert_same(weights(fresh), expected_weights)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 3])
def test_interrupted_validation_resumes_to_the_same_result(tmp_path, at, after):
    interruption = {"goal": interrupted_goal("validate", at=at, after=after)}
    assert_resumes_to_the_same_result(tmp_path / "run.safetensors", interrupted_settings=interruption)


@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupted_run_whose_start_is_best_resumes_to_it(tmp_path, at):
    settings = {**SETTINGS, "learning_rate": 5.0, "clip_norm": None, "start_counts": True}
    path, model = tmp_path / "run.safetensors", small_model()
    before = weights(model)
    with pytest.raises(KeyboardInterrupt):
        fit(model, TRAIN, VALIDATION, checkpoint=path, goal=interrupted_goal("validate", at=at), **settings)
    resumed = small_model()
    fit(resumed, TRAIN, VALIDATION, checkpoint=path, **settings)
    assert_same(weights(resumed), before)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_an_interrupted_batch_resumes_to_the_same_result(tmp_path, after, seconds):
    interruption = {"goal": interrupted_goal("accumulate", at=7, after=after)}
    path = tmp_path / "run.safetensors"
    assert_resumes_to_the_same_result(path, interrupted_settings=interruption, checkpoint_seconds=seconds)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("part", "name", "at"), [(GaussianObservation, "em_step_", 7), (os, "replace", 2)])
@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_interrupted_em_and_saving_resume_to_the_same_result(monkeypatch, tmp_path, part, name, at, after, seconds):
    """With the weights moved but not the covariances, say, nothing may be saved."""
    interrupt_once(monkeypatch, part, name, at=at, after=after)
    assert_resumes_to_the_same_result(tmp_path / "run.safetensors", checkpoint_seconds=seconds)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_interrupted_bookkeeping_resumes_to_the_same_result(tmp_path, seconds):
    interruption = {"goal": InterruptedBookkeeping(at=7)}
    path = tmp_path / "run.safetensors"
    assert_resumes_to_the_same_result(path, interrupted_settings=interruption, checkpoint_seconds=seconds)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_an_interrupted_step_of_the_optimiser_resumes_to_the_same_result(monkeypatch, tmp_path, after, seconds):
    interrupt_once(monkeypatch, Adam, "step", at=7, after=after)
    assert_resumes_to_the_same_result(tmp_path / "run.safetensors", checkpoint_seconds=seconds)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_runs_of_any_optimiser_resume_to_the_same_result(tmp_path, optimiser):
    interruption = {"schedule": Interrupt(7)}
    assert_resumes_to_the_same_result(tmp_path / "run.safetensors", optimiser, interruption)


FORECASTS = ForecastScore(3, n_paths=3, validation_paths=6)
RUNS = {
    "averaging": {"averaging": 0.9},
    "a short epoch": {"steps_per_epoch": 3},
    "a long epoch": {"steps_per_epoch": 7},
    "forecasts": {"goal": FORECASTS},
    "weighted forecasts": {"goal": ForecastScore(3, (2.0,), n_paths=3, validation_paths=6)},
    "everything": {"averaging": 0.9, "steps_per_epoch": 3, "goal": FORECASTS},
}


@pytest.mark.parametrize("interrupted_at", [2, 4, 9])
@pytest.mark.parametrize(
    ("observation", "validation"), [("gaussian", VALIDATION), ("student_t", None)], ids=["validated", "not validated"]
)
@pytest.mark.parametrize("run", RUNS)
def test_runs_of_any_kind_resume_to_the_same_result(tmp_path, run, observation, validation, interrupted_at):
    settings = {**SETTINGS, **RUNS[run]}
    straight, interrupted, fresh = (small_model(seed=seed, observation=observation) for seed in (0, 0, 99))
    expected = fit(straight, TRAIN, validation, **settings)
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(interrupted, TRAIN, validation, checkpoint=path, schedule=Interrupt(interrupted_at), **settings)
    assert load_checkpoint(path).state["step"] == interrupted_at - 1
    assert fit(fresh, TRAIN, validation, checkpoint=path, **settings) == expected
    assert_same(weights(fresh), weights(straight))


def resume_after(interrupt, path, **settings):
    """A run that `interrupt` disturbs, by a patch or by settings, resumed, against one that nobody disturbs."""
    settings = {**SETTINGS, "epochs": 3, **settings}
    straight = small_model()
    expected = fit(straight, TRAIN, VALIDATION, **settings)
    with pytest.MonkeyPatch.context() as patch:
        disturbed = {**settings, **(interrupt(patch) or {})}
        with pytest.raises(KeyboardInterrupt):
            fit(small_model(), TRAIN, VALIDATION, checkpoint=path, **disturbed)
    fresh = small_model(seed=99 if path.exists() else 0)  # nothing saved yet: it begins again
    assert fit(fresh, TRAIN, VALIDATION, checkpoint=path, **settings) == expected
    assert_same(weights(fresh), weights(straight))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 3])
def test_interrupted_validation_of_an_average_resumes_to_the_same_result(tmp_path, at, after):
    """The checkpoint must hold the weights of the run, not the average that was being validated."""

    def interrupt(patch):
        return {"goal": interrupted_goal("validate", at=at, after=after)}

    resume_after(interrupt, tmp_path / "run.safetensors", averaging=0.9)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3, 4], ids=lambda at: f"{'entering' if at % 2 else 'leaving'} {at}")
def test_a_change_to_the_average_or_back_that_is_interrupted_resumes_to_the_same_result(tmp_path, at, after):
    """With the average in place of the weights nothing may be saved as if it were the weights."""

    def interrupt(patch):
        interrupt_once(patch, SMCTransformer, "load_state_dict", at=at, after=after)

    resume_after(interrupt, tmp_path / "run.safetensors", averaging=0.9)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [2, 5, 6, 7, 8, 11, 12])
@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_an_update_or_a_use_of_the_average_that_is_interrupted_resumes_to_the_same_result(tmp_path, at, after, seconds):
    """Weights are read at every step for their average, around validations and when they are saved."""

    def interrupt(patch):
        interrupt_once(patch, SMCTransformer, "state_dict", at=at, after=after)

    resume_after(interrupt, tmp_path / "run.safetensors", averaging=0.9, checkpoint_seconds=seconds)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_an_interrupt_right_after_an_update_of_the_average_resumes_to_the_same_result(tmp_path, seconds):
    def interrupt(patch):
        return {"goal": InterruptedBookkeeping(at=7)}

    resume_after(interrupt, tmp_path / "run.safetensors", averaging=0.9, checkpoint_seconds=seconds)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interrupted_forecast_score_resumes_to_the_same_result(tmp_path, after):
    def interrupt(patch):
        return {"goal": interrupted_goal("accumulate", at=7, after=after, goal=FORECASTS)}

    resume_after(interrupt, tmp_path / "run.safetensors", goal=FORECASTS)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("settings", [{}, {"goal": FORECASTS}], ids=["likelihood", "forecasts"])
def test_an_interrupted_gradient_resumes_to_the_same_result(tmp_path, settings, after):
    def interrupt(patch):
        interrupt_once(patch, torch.Tensor, "backward", at=7, after=after)

    resume_after(interrupt, tmp_path / "run.safetensors", **settings)


@pytest.mark.parametrize("steps_per_epoch", [1, 3, 4, 7])
def test_epochs_of_any_length_go_through_all_sequences_in_turn(steps_per_epoch):
    """Four batches are a pass, wherever epochs begin and end."""
    goal = WatchedGoal()
    history = fit(small_model(), TRAIN, VALIDATION, goal=goal, steps_per_epoch=steps_per_epoch, **SETTINGS)
    batches = [call.x for call in goal.batches]
    assert len(history) == 4
    assert [len(batch) for batch in batches] == ([6, 6, 6, 2] * 7)[: 4 * steps_per_epoch]
    for first in range(0, len(batches) - 3, 4):
        seen = torch.cat(batches[first : first + 4])[:, 0, 0]
        assert sorted(seen.tolist()) == sorted(TRAIN[:, 0, 0].tolist())


def test_the_training_loss_of_an_epoch_is_that_of_its_own_steps():
    goal = WatchedGoal()
    history = fit(small_model(), TRAIN, VALIDATION, goal=goal, steps_per_epoch=3, **SETTINGS)
    reports = [call.result for call in goal.batches]
    for epoch, report in enumerate(history):
        own = reports[3 * epoch : 3 * epoch + 3]
        assert report.training_loss == pytest.approx(sum(r.loss for r in own) / sum(r.n_terms for r in own))


def test_an_epoch_as_long_as_a_pass_is_a_pass():
    one, other = small_model(), small_model()
    assert fit(one, TRAIN, VALIDATION, **SETTINGS) == fit(other, TRAIN, VALIDATION, steps_per_epoch=4, **SETTINGS)
    assert_same(weights(one), weights(other))


def test_a_forecast_score_neither_uses_nor_changes_the_global_random_state():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = fit(small_model(), TRAIN, VALIDATION, goal=FORECASTS, **SETTINGS)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert fit(small_model(), TRAIN, VALIDATION, goal=FORECASTS, **SETTINGS) == first


def test_a_finished_run_asked_for_more_epochs_goes_on_as_if_it_had_been_asked_at_once(tmp_path):
    path = tmp_path / "run.safetensors"
    settings = {**SETTINGS, "patience": 5}
    first = fit(small_model(), TRAIN, VALIDATION, checkpoint=path, **{**settings, "epochs": 2})
    fresh, straight = small_model(seed=99), small_model()
    history = fit(fresh, TRAIN, VALIDATION, checkpoint=path, **{**settings, "epochs": 6})
    assert len(history) == 6
    assert history[:2] == first
    assert history == fit(straight, TRAIN, VALIDATION, **{**settings, "epochs": 6})
    assert_same(weights(fresh), weights(straight))


def test_a_run_that_ran_out_of_patience_stays_stopped(tmp_path):
    settings = {**SETTINGS, "epochs": 30, "patience": 2, "learning_rate": 0.5, "clip_norm": None}
    settings["checkpoint"] = tmp_path / "run.safetensors"
    first, second = small_model(), small_model(seed=99)
    history = fit(first, TRAIN, VALIDATION, **settings)
    assert len(history) < 30
    goal = WatchedGoal()
    assert fit(second, TRAIN, VALIDATION, goal=goal, **{**settings, "epochs": 40}) == history
    assert goal.batches == []
    assert_same(weights(first), weights(second))


OTHER_RUNS = {
    "training data": {"train": sequences(20, 6, seed=5)},
    "validation data": {"validation": sequences(8, 6, seed=5)},
    "validation data: .* there, None here": {"validation": None},
    "type: torch.float64 there, torch.float32 here": {
        "model": lambda: small_model().float(),
        "train": TRAIN.float(),
        "validation": VALIDATION.float(),
    },
    "config": {"model": lambda: small_model(window=3)},
    "optimiser: Adam there, SGD here": {"optimiser": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate)},
    "learning_rate: 0.003 there, 0.01 here": {"learning_rate": 0.01},
    "clip_norm: 1.0 there, None here": {"clip_norm": None},
    "batch_size: 6 there, 5 here": {"batch_size": 5},
    "n_particles: None there, 6 here": {"n_particles": 6},
    "n_trajectories: None there, 3 here": {"n_trajectories": 3},
    "validation_particles: 8 there, 9 here": {"validation_particles": 9},
    "goal: Likelihood there, ForecastScore here": {"goal": ForecastScore(3)},
    "steps_per_epoch: None there, 3 here": {"steps_per_epoch": 3},
    "averaging: None there, 0.9 here": {"averaging": 0.9},
}


@pytest.mark.parametrize("difference", OTHER_RUNS)
def test_checkpoints_of_other_runs_are_refused_and_the_difference_named(tmp_path, difference):
    path = tmp_path / "run.safetensors"
    settings = {**SETTINGS, "epochs": 1, "checkpoint": path}
    fit(small_model(), TRAIN, VALIDATION, **settings)
    before = path.read_bytes()
    other = {"model": small_model, "train": TRAIN, "validation": VALIDATION, **settings, **OTHER_RUNS[difference]}
    model, goal = other.pop("model")(), WatchedGoal(other.pop("goal", None))
    untouched = weights(model)
    with pytest.raises(CheckpointError, match=rf"another training run \(.*{difference}"):
        fit(model, other.pop("train"), other.pop("validation"), goal=goal, **{**other, "epochs": 3})
    assert goal.batches == []
    assert path.read_bytes() == before
    assert_same(weights(model), untouched)


def test_a_checkpoint_that_calls_trajectories_lines_is_resumed(tmp_path):
    """As they were called when the format was made."""
    path, settings = tmp_path / "run.safetensors", {**SETTINGS, "n_trajectories": 3}
    whole = fit(small_model(), TRAIN, VALIDATION, **{**settings, "epochs": 3})
    fit(small_model(), TRAIN, VALIDATION, checkpoint=path, **{**settings, "epochs": 1})
    tensors, state = load_checkpoint(path)
    state["identity"]["n_lines"] = state["identity"].pop("n_trajectories")
    save_checkpoint(path, Checkpoint(tensors, state))
    assert fit(small_model(), TRAIN, VALIDATION, checkpoint=path, **{**settings, "epochs": 3}) == whole
    save_checkpoint(path, Checkpoint(tensors, state))
    with pytest.raises(CheckpointError, match="n_trajectories: 3 there, 4 here"):
        fit(small_model(), TRAIN, VALIDATION, checkpoint=path, **{**settings, "n_trajectories": 4})


def test_only_what_differs_is_named(tmp_path):
    path = tmp_path / "run.safetensors"
    fit(small_model(), TRAIN, VALIDATION, checkpoint=path, **SETTINGS)
    with pytest.raises(CheckpointError, match=r"another training run \(learning_rate: 0\.003 there, 0\.01 here\);"):
        fit(small_model(), TRAIN, VALIDATION, checkpoint=path, learning_rate=0.01, **SETTINGS)


def test_a_folder_for_a_checkpoint_is_refused_before_training(tmp_path):
    goal = WatchedGoal()
    with pytest.raises(CheckpointError, match=r"must be a file, but .* is a folder"):
        fit(small_model(), TRAIN, goal=goal, checkpoint=tmp_path, **SETTINGS)
    assert goal.batches == []


def test_a_checkpoint_below_a_file_is_refused_before_training(tmp_path):
    goal = WatchedGoal()
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CheckpointError, match="no checkpoint can be written to"):
        fit(small_model(), TRAIN, goal=goal, checkpoint=tmp_path / "file" / "run.safetensors", **SETTINGS)
    assert goal.batches == []


def test_a_checkpoint_in_a_folder_that_is_not_writable_is_refused_before_training(monkeypatch, tmp_path):
    goal = WatchedGoal()

    def read_only(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)  # the superuser may write anywhere
    with pytest.raises(CheckpointError, match=r"no file can be made in .* \(Read-only file system\)"):
        fit(small_model(), TRAIN, goal=goal, checkpoint=tmp_path / "run.safetensors", **SETTINGS)
    assert goal.batches == []


def test_folders_for_a_checkpoint_are_made(tmp_path):
    path = tmp_path / "some" / "where" / "run.safetensors"
    fit(small_model(), TRAIN, checkpoint=str(path), **SETTINGS)
    assert load_checkpoint(path).state["step"] == 16


def test_checkpoints_that_cannot_be_used_say_why(tmp_path):
    path = tmp_path / "run.safetensors"
    fit(small_model(), TRAIN, checkpoint=path, **SETTINGS)

    with pytest.raises(CheckpointError, match=r"another training run.*seed: 3 there, 4 here"):
        fit(small_model(), TRAIN, checkpoint=path, **{**SETTINGS, "seed": 4})

    truncated = tmp_path / "truncated.safetensors"
    truncated.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is not readable"):
        fit(small_model(), TRAIN, checkpoint=truncated, **SETTINGS)

    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(1)}, foreign)
    with pytest.raises(CheckpointError, match="not a training checkpoint"):
        fit(small_model(), TRAIN, checkpoint=foreign, **SETTINGS)

    newer = tmp_path / "newer.safetensors"
    header = json.dumps({"format": "smc-transformer-training", "version": 99, "state": {}})
    save_file({"a": torch.zeros(1)}, newer, metadata={"header": header})
    with pytest.raises(CheckpointError, match="format version 99"):
        fit(small_model(), TRAIN, checkpoint=newer, **SETTINGS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": -1}, "batch_size must be at least 1"),
        ({"n_trajectories": 0}, "n_trajectories must be at least 1"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must be at least 1"),
        ({"averaging": 1.5}, "averaging must be between 0 and 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
    ],
)
def test_impossible_settings_are_rejected(settings, message):
    with pytest.raises(ValueError, match=message):
        Trainer(small_model(), **settings)


def test_patience_without_validation_is_rejected():
    with pytest.raises(ValueError, match="needs validation sequences"):
        fit(small_model(), TRAIN, patience=2)


def test_schedules():
    assert constant()(17) == 1.0
    cosine = warmup_cosine(n_steps=110, n_warmup=10, final=0.1)
    assert [cosine(step) for step in (5, 10, 60, 110, 500)] == pytest.approx([0.5, 1.0, 0.55, 0.1, 0.1])
    vaswani = warmup_inverse_sqrt(d_model=64, n_warmup=100)
    assert vaswani(100) == pytest.approx(1 / 80)
    assert vaswani(50) == pytest.approx(vaswani(100) / 2)
    assert vaswani(400) == pytest.approx(vaswani(100) / 2)
