"""Cells with the real baselines, data and scores."""

import json
from dataclasses import replace

import pytest

from smct_paper.baselines import BASELINES
from smct_paper.datasets import DATASETS
from smct_paper.experiments.cells import plain, run_cell
from smct_paper.experiments.grid import BAYES_OPTIMAL, Cell, baseline_config
from smct_paper.experiments.methods import build_method, settings_of
from smct_paper.experiments.profiles import PAPER, QUICK, Epochs
from smct_paper.experiments.progress import expected_cost
from smct_paper.experiments.versions import package_commit, versions

TINY = replace(QUICK, epochs_on={"model1": Epochs(1, bayesian=1)}, n_windows=5, n_samples=20)


@pytest.mark.parametrize("model", BASELINES)
def test_every_baseline_is_built_with_the_profile_and_the_batch_size(model):
    cell = Cell("weather", "paper", model, baseline_config(model), 0)
    settings = settings_of(cell, QUICK)
    assert settings == build_method(cell, QUICK).settings()
    assert settings == json.loads(json.dumps(settings))
    if "epochs" in settings:
        quick, paper = QUICK.epochs_on.get("weather", QUICK.epochs), PAPER.epochs
        assert settings["epochs"] == (quick.bayesian if "bayesian" in model else quick.others)
        assert settings["batch_size"] == DATASETS["weather"].batch_size == 256
        assert settings_of(cell, PAPER)["epochs"] == (paper.bayesian if "bayesian" in model else paper.others)
    else:
        assert settings == BASELINES[model]().settings()


def test_the_warm_up_of_a_transformer_has_its_share_of_the_epochs():
    def warmup_steps(dataset, profile):
        return settings_of(Cell(dataset, "paper", "transformer", "paper", 0), profile)["warmup_steps"]

    short = replace(QUICK, epochs=Epochs(5, bayesian=500), epochs_on={"weather": Epochs(10, bayesian=1)})
    assert warmup_steps("weather", PAPER) == BASELINES["transformer"]().settings()["warmup_steps"] == 4000
    assert warmup_steps("stock", short) == 400
    assert warmup_steps("weather", short) == 800


def test_the_truth_has_no_settings():
    assert settings_of(Cell("model1", "folds", BAYES_OPTIMAL, "default", 0), QUICK) == {}
    assert baseline_config(BAYES_OPTIMAL) == "default"


@pytest.mark.parametrize("model", [BAYES_OPTIMAL, "naive", "lstm_dropout_0.1"])
def test_a_cell_is_trained_and_scored(model):
    record = run_cell(Cell("model1", "folds", model, baseline_config(model), 1), TINY, None)
    json.dumps(record, allow_nan=False)
    assert set(record) == {"training", "seconds", "tasks"}
    assert set(record["tasks"]) == {"unistep", "multistep"}
    for task, n_steps in (("unistep", 24), ("multistep", 12)):
        scores = record["tasks"][task]
        assert scores["n_windows"] == 5
        assert 0 < scores["metrics"]["mse"] < 10
        assert len(scores["per_step"]["mse"]) == n_steps
        assert sum(scores["pit"]) == 5 * n_steps


def test_folds_and_seeds_change_the_result_and_nothing_else_does():
    def scores(fold):
        return run_cell(Cell("model1", "folds", "autoregression", "default", fold), TINY, None)["tasks"]

    assert scores(0) == scores(0)
    assert scores(0) != scores(1)


def test_plain_values_are_what_json_gives_back():
    value = {"a": (1, 2.0, float("nan")), 3: [float("inf"), None, "text", True]}
    assert plain(value) == {"a": [1, 2.0, None], "3": [None, None, "text", True]}


def test_long_cells_are_known_to_be_long():
    def cost(dataset, model):
        return expected_cost(Cell(dataset, "paper", model, "paper", 0))

    assert cost("weather", "bayesian_lstm_10") > cost("weather", "lstm_dropout_0.5") > cost("weather", "lstm")
    assert cost("weather", "lstm") > cost("covid", "lstm") > cost("covid", "naive")


def test_versions(tmp_path):
    assert {"python", "torch", "smc_transformer"} <= set(versions())
    (tmp_path / "__init__.py").touch()
    assert package_commit(tmp_path) is None
