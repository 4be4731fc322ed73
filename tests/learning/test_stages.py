"""Training in stages: their order, their settings, and the one bar above them."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from helpers.models import assert_same, make_model, sequences, weights

from smc_transformer import SMCTransformer
from smc_transformer.learning import (
    ForecastScore,
    Likelihood,
    Recipe,
    SquaredError,
    Stage,
    Trainer,
    evenly_spaced,
    train_in_stages,
)
from smc_transformer.learning import recipe as stages_module
from smc_transformer.learning.calibration import share_covered, widen_to_cover


def model():
    return make_model(d_model=4, d_ff=4, n_particles=3)


SHORT = Stage(4, validations=2, batch_size=8)
STAGES = {
    "first": (SHORT, SquaredError()),
    "second": (Stage(3, validations=1, batch_size=5, learning_rate=0.01, averaging=None), Likelihood()),
    "third": (Stage(2, validations=2, batch_size=8, patience=1), ForecastScore(2, n_paths=3, validation_paths=4)),
}


def test_each_stage_goes_on_where_the_last_has_ended():
    x, held_out = sequences(20, 6), sequences(8, 6, seed=1)
    together, apart = model(), model()
    reports = train_in_stages(together, STAGES, x, held_out, seed=3)
    expected = {name: stage.trainer(apart, goal, 3).fit(x, held_out) for name, (stage, goal) in STAGES.items()}
    assert list(reports) == list(STAGES)
    assert reports == expected
    for name, value in apart.state_dict().items():
        assert torch.equal(together.state_dict()[name], value)


def test_another_order_is_another_training():
    x = sequences(20, 6)
    one, two = model(), model()
    train_in_stages(one, STAGES, x, x)
    train_in_stages(two, dict(reversed(STAGES.items())), x, x)
    assert not torch.equal(one.readout.projection.weight, two.readout.projection.weight)


def test_a_stage_becomes_a_trainer():
    stage = Stage(
        40,
        validations=4,
        batch_size=7,
        learning_rate=0.02,
        warmup=0.5,
        averaging=0.9,
        em_offset=10,
        n_trajectories=2,
        patience=3,
    )
    trainer = stage.trainer(model(), Likelihood(), 5)
    assert isinstance(trainer, Trainer)
    assert (trainer.epochs, trainer.steps_per_epoch, trainer.batch_size) == (4, 10, 7)
    assert (trainer.learning_rate, trainer.averaging, trainer.patience, trainer.seed) == (0.02, 0.9, 3, 5)
    assert trainer.em_step_size(1) == pytest.approx(11**-0.6)
    assert trainer.schedule(10) == pytest.approx(0.5)
    assert trainer.schedule(40) < 0.05
    assert trainer.n_trajectories == 2
    assert not trainer.progress


def test_the_papers_schedule():
    schedule = Stage(100, schedule="vaswani", warmup=0.1).trainer(model(), Likelihood(), 0).schedule
    assert schedule(10) == max(schedule(step) for step in range(1, 101))
    assert schedule(40) == pytest.approx(schedule(10) / 2)


def test_there_is_one_bar_for_all_steps(monkeypatch):
    bars = []

    class Bar:
        def __init__(self, total):
            self.total, self.done, self.messages = total, 0, []

        def advance(self, amount, message=""):
            self.done += amount
            self.messages.append(message)

    @contextmanager
    def progress_report(title, total, *, enabled):
        bars.append((title, enabled, Bar(total)))
        yield bars[-1][2]

    monkeypatch.setattr(stages_module, "progress_report", progress_report)
    stages = {name: STAGES[name] for name in ("first", "second")}
    train_in_stages(model(), stages, sequences(20, 6), None, progress=True)
    ((title, enabled, bar),) = bars
    assert (title, enabled) == ("training", True)
    assert bar.total == bar.done == 7
    assert [message.split()[0] for message in bar.messages] == ["mse", "mse", "nll"]


def test_windows_are_evenly_spaced():
    assert evenly_spaced(11, 3).tolist() == [0, 5, 10]
    assert evenly_spaced(1315, 500).tolist() == np.linspace(0, 1314, 500).round().tolist()
    assert evenly_spaced(4, 500).tolist() == [0, 1, 2, 3]
    assert evenly_spaced(4, None).tolist() == [0, 1, 2, 3]


# --- the whole recipe -----------------------------------------------------------------------------------------------

SETTINGS = {"d_model": 4, "d_ff": 4, "n_particles": 3, "input_changes": True, "observation": "student_t"}
RECIPE = Recipe(squared_error=SHORT, likelihood=SHORT, forecast=SHORT, forecast_paths=3, validation_paths=4)


def data():
    return sequences(20, 6, dtype=torch.float32), sequences(8, 6, seed=1, dtype=torch.float32)


def test_a_recipe_is_its_stages_one_after_the_other_from_the_scales_of_the_data():
    x, held_out = data()
    trained, by_hand = (SMCTransformer.from_settings(SETTINGS, generator=3) for _ in range(2))
    losses = RECIPE.train(trained, x, held_out, history=2, units=(2.0,), seed=3)
    by_hand.encoder.set_scales_(x)
    stages = {
        "squared_error": (SHORT, SquaredError((2.0,))),
        "likelihood": (SHORT, Likelihood()),
        "forecast": (SHORT, ForecastScore(2, (2.0,), n_paths=3, validation_paths=4)),
    }
    reports = train_in_stages(by_hand, stages, x, held_out, seed=3)
    assert_same(weights(trained), weights(by_hand))
    assert losses == {name: [report.validation_loss for report in history] for name, history in reports.items()}


@pytest.mark.parametrize("left_out", [None, Stage(0)])
def test_stages_can_be_left_out(left_out):
    x, held_out = data()
    recipe = Recipe(squared_error=left_out, likelihood=SHORT, forecast=left_out)
    assert list(recipe.train(SMCTransformer.from_settings(SETTINGS), x, held_out, history=2, units=(1.0,))) == [
        "likelihood"
    ]


def test_without_validation_sequences_there_are_no_validation_losses():
    x, _ = data()
    losses = RECIPE.train(SMCTransformer.from_settings(SETTINGS), x, None, history=2, units=(1.0,))
    assert losses == {"squared_error": [], "likelihood": [], "forecast": []}


@pytest.mark.parametrize("histories", [(None,), (2,), (2, None)], ids=str)
def test_noise_is_widened_until_the_smallest_coverage_is_the_one_wanted(histories):
    x, _ = data()
    found, expected = model(), model()
    recipe = Recipe(likelihood=SHORT, widening_blocks=2)
    factor = recipe.widen(found, x.double(), 0.9, histories=histories, n_scored=1, n_halvings=3)

    def coverage(candidate):
        return min(share_covered(candidate, x.double(), 1, history=history, n_blocks=2) for history in histories)

    assert factor == widen_to_cover(expected, coverage, 0.9, 3)
    assert_same(weights(found), weights(expected))
