"""Which cells there are, and which are chosen."""

from collections import Counter

import pytest

from smc_transformer.experiments.grid import Cell, Choice, ChoiceError, realworld_grid, select_cells, synthetic_grid
from smc_transformer.experiments.profiles import PAPER, QUICK

pytestmark = pytest.mark.usefixtures("standing_in")

N_BASELINES = 7  # of the stand-ins, with bayesian_lstm_3
REAL = {"covid", "air_quality", "weather", "energy", "stock"}


def test_synthetic_data_have_five_folds_of_every_model():
    cells = synthetic_grid()
    assert len(cells) == len(set(cells)) == 3 * (N_BASELINES + 4) * 5
    assert {cell.split for cell in cells} == {"folds"}
    assert {cell.config for cell in cells if cell.model == "smc_transformer"} == {
        "paper-10",
        "paper-30",
        "best-10",
        "best-30",
    }
    assert {cell.config for cell in cells if cell.model == "persistence"} == {"default"}


def test_real_data_have_two_splits_and_the_seeds_of_the_profile():
    cells = realworld_grid(QUICK)
    assert {cell.dataset for cell in cells} == REAL
    assert "bayesian_lstm_3" not in {cell.model for cell in cells}
    of_weather = Counter((cell.split, cell.model, cell.config) for cell in cells if cell.dataset == "weather")
    assert of_weather["chronological", "smc_transformer", "best"] == 3
    assert of_weather["chronological", "plain", "paper"] == 1
    assert of_weather["paper", "smc_transformer", "best"] == 1
    assert len(of_weather) == 2 * (N_BASELINES - 1 + 2)
    assert len(realworld_grid(PAPER)) > len(cells)


def test_ablations_are_chronological_and_run_on_request():
    cells = select_cells("realworld", QUICK, Choice(configs=["ablations"]))
    assert {cell.config for cell in cells} == {"best-no-noise", "best-no-linear-path"}
    assert {cell.split for cell in cells} == {"chronological"}
    one = select_cells("all", QUICK, Choice(configs=["best-no-noise", "best"], datasets=["stock"], seeds=1))
    assert [(cell.split, cell.config) for cell in one] == [
        ("chronological", "best"),
        ("chronological", "best-no-noise"),
        ("paper", "best"),
    ]


def test_a_model_that_is_left_out_can_be_asked_for():
    cells = select_cells("realworld", QUICK, Choice(models=["bayesian_lstm_3"], splits=["paper"]))
    assert {cell.dataset for cell in cells} == REAL


def test_seeds_are_counted_from_nought_and_there_are_five_folds_at_most():
    cells = select_cells("all", QUICK, Choice(datasets=["model1", "stock"], models=["plain"], seeds=7))
    assert Counter(cell.split for cell in cells) == {"folds": 5, "chronological": 7, "paper": 7}
    assert {cell.seed for cell in cells if cell.split == "paper"} == set(range(7))


@pytest.mark.parametrize(
    ("group", "choice", "message"),
    [
        ("realworld", Choice(datasets=["wether"]), "unknown data set 'wether'; there are: covid, air_quality, weather"),
        ("synthetic", Choice(datasets=["weather"]), "there are: model1, model2, model3$"),
        ("all", Choice(models=["plain", "lstn"]), "unknown model 'lstn'; there are: plain, .*smc_transformer"),
        ("realworld", Choice(configs=["bets"]), "there are: paper, best, best-no-noise, .*ablations, default"),
        ("realworld", Choice(splits=["random"]), "unknown split 'random'; there are: chronological, paper"),
        ("synthetic", Choice(splits=["paper"]), "folds"),
        ("realworld", Choice(configs=["ablations"], splits=["paper"]), "no cell fits"),
        ("real", None, "unknown group 'real'; there are: synthetic, realworld, all"),
    ],
)
def test_unknown_names_are_answered_with_what_there_is(group, choice, message):
    with pytest.raises(ChoiceError, match=message):
        select_cells(group, QUICK, choice)


def test_names_of_cells_are_unique_and_tell_what_they_are():
    names = [cell.name for cell in select_cells("all", QUICK)]
    assert len(names) == len(set(names))
    assert Cell("stock", "paper", "lstm", "paper", 2).name == "stock-paper-lstm-paper-2"
    assert Cell("stock", "paper", "lstm", "paper", 2).identity()["seed"] == 2
    assert Cell("model1", "folds", "lstm", "paper", 2).identity()["fold"] == 2


def test_profiles_are_said_in_plain_words():
    assert "baselines train 12 epochs, the Bayesian LSTM 25 (" in QUICK.describe()
    assert "50 and 50 on covid; 20 and 20 on model1, model2, model3; 8 and 6 on weather; in the paper 50 and 150)" in QUICK.describe()
    assert "at most 500 evenly spaced test windows" in QUICK.describe()
    assert "all test windows" in PAPER.describe()
    assert "2 of 5 folds, real data: 2 seeds" in QUICK.describe(seeds=2)
