"""Which cells there are, and which are chosen."""

from collections import Counter
from dataclasses import replace

import pytest

from smct_paper.experiments.grid import (
    BAYES_OPTIMAL,
    SYNTHETIC_CONFIGS,
    Cell,
    Choice,
    ChoiceError,
    realworld_grid,
    select_cells,
    synthetic_grid,
)
from smct_paper.experiments.profiles import N_FOLDS, PAPER, QUICK, Epochs

pytestmark = pytest.mark.usefixtures("standing_in")

N_BASELINES = 7  # of the stand-ins, with bayesian_lstm_3
REAL = {"covid", "air_quality", "weather", "energy", "stock"}


def test_synthetic_data_have_five_folds_of_every_model():
    cells = synthetic_grid()
    assert len(cells) == len(set(cells)) == 3 * (1 + N_BASELINES + len(SYNTHETIC_CONFIGS)) * N_FOLDS
    assert {cell.split for cell in cells} == {"folds"}
    assert {cell.config for cell in cells if cell.model == "smc_transformer"} == set(SYNTHETIC_CONFIGS)
    assert {cell.config for cell in cells if cell.model == "naive"} == {"default"}


def test_the_truth_comes_first_on_synthetic_data_and_never_on_real_data():
    for dataset in ("model1", "model2", "model3"):
        cells = select_cells("all", QUICK, Choice(datasets=[dataset]))
        assert cells[:N_FOLDS] == [Cell(dataset, "folds", BAYES_OPTIMAL, "default", fold) for fold in range(N_FOLDS)]
    assert BAYES_OPTIMAL not in {cell.model for cell in realworld_grid(QUICK)}
    asked_for = select_cells("all", QUICK, Choice(models=[BAYES_OPTIMAL]))
    assert {cell.dataset for cell in asked_for} == {"model1", "model2", "model3"}
    with pytest.raises(ChoiceError, match="no cell fits"):
        select_cells("realworld", QUICK, Choice(models=[BAYES_OPTIMAL]))


def test_real_data_have_two_splits_and_the_seeds_of_the_profile():
    profile = replace(QUICK, best_seeds=5, baseline_seeds=2, ablation_seeds=3, paper_split_seeds=4)
    cells = realworld_grid(profile)
    assert {cell.dataset for cell in cells} == REAL
    assert "bayesian_lstm_3" not in {cell.model for cell in cells}
    of_weather = Counter((cell.split, cell.model, cell.config) for cell in cells if cell.dataset == "weather")
    assert of_weather["chronological", "smc_transformer", "best"] == 5
    assert of_weather["chronological", "smc_transformer", "paper"] == 2
    assert of_weather["chronological", "plain", "paper"] == 2
    assert {of_weather[key] for key in of_weather if key[0] == "paper"} == {4}
    assert len(of_weather) == 2 * (N_BASELINES - 1 + 2) + 1  # the local view is for the chronological split only
    assert of_weather["chronological", "smc_transformer", "paper+view"] == 2
    ablations = realworld_grid(profile, Choice(datasets=["weather"], configs=["ablations"]))
    assert set(Counter(cell.config for cell in ablations).values()) == {3}
    assert len(realworld_grid(PAPER)) > len(realworld_grid(QUICK))


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
        (
            "all",
            Choice(models=["plain", "lstn"]),
            "unknown model 'lstn'; there are: bayes_optimal, plain, .*smc_transformer$",
        ),
        (
            "realworld",
            Choice(configs=["bets"]),
            "there are: paper, paper.view, best, best-no-noise, .*ablations, default",
        ),
        ("realworld", Choice(splits=["random"]), "unknown split 'random'; there are: chronological, paper"),
        ("synthetic", Choice(splits=["paper"]), "folds"),
        ("realworld", Choice(configs=["ablations"], splits=["paper"]), "no cell fits"),
        ("real", Choice(), "unknown group 'real'; there are: synthetic, realworld, all"),
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
    long = Epochs(70, bayesian=80)
    profile = replace(
        QUICK,
        epochs=Epochs(3, bayesian=7),
        epochs_on={"covid": long, "weather": Epochs(2, bayesian=1), "stock": long},
        synthetic_smc_epochs=4,
        n_windows=400,
        n_samples=90,
        best_seeds=6,
        baseline_seeds=2,
    )
    assert profile.describe() == (
        "profile quick: baselines train 3 epochs, the Bayesian LSTM 7 (70 and 80 on covid, stock; 2 and 1 on weather; "
        "in the paper 50 and 150), the SMC Transformer of the paper as many as the baselines, on synthetic data 4; "
        "the best one trains 1/3 as long as in the profile paper; scores are taken on at most 400 evenly spaced test "
        "windows, with 90 samples of each forecast; synthetic data: 5 folds, real data: 6 seeds of the best SMC "
        "Transformer and 2 of the others on the chronological split, 1 seed on the split of the paper."
    )
    assert "2 of 5 folds, real data: 2 seeds" in profile.describe(seeds=2)
    assert "baselines train 50 epochs, the Bayesian LSTM 150, the SMC Transformer" in PAPER.describe()
    assert "on synthetic data 50; scores are taken on at most 2000 evenly spaced test windows" in PAPER.describe()
