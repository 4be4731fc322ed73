"""Verdicts follow the numbers."""

import copy

import helpers.fabricated_results as fabricated
import pytest

from smct_paper.experiments.report.checks import Check, Condition
from smct_paper.experiments.report.results import Results, Row
from smct_paper.experiments.report.targets import chronological_checks, paper_checks, synthetic_checks


@pytest.fixture
def rows():
    return copy.deepcopy(fabricated.all_rows())


def results_of(rows):
    return Results([Row.read(row) for row in rows])


def verdicts(rows, config="best"):
    results = results_of(rows)
    every = [*synthetic_checks(results), *paper_checks(results), *chronological_checks(results)]
    return {(check.target, check.subject): check.verdict for check in every if check.subject.startswith(config)}


def change(rows, metric, value, **wanted):
    found = [row for row in rows if all(row[name] == wish for name, wish in wanted.items())]
    assert found
    for row in found:
        row["metrics"][metric] = value


def test_all_targets_are_met_by_results_that_meet_them(rows):
    assert set(verdicts(rows).values()) == {"met"}
    assert set(verdicts(rows, "baselines").values()) == {"met"}


OURS = {"model": "smc_transformer", "config": "best"}


@pytest.mark.parametrize(
    ("target", "metric", "value", "wanted"),
    [
        ("NLL within", "nll", 2.0, {"model": "smc_transformer", "config": "best-10", "dataset": "model1"}),
        ("dist-mse within", "dist_mse", 0.30, {"model": "smc_transformer", "config": "best-30", "dataset": "model2"}),
        ("unistep PICP", "picp", 0.949, {**OURS, "dataset": "covid", "split": "paper", "task": "unistep"}),
        ("multistep PICP at", "picp", 0.90, {**OURS, "dataset": "covid", "split": "paper", "task": "multistep"}),
        ("unistep MPIW below", "mpiw", 0.71, {**OURS, "dataset": "covid", "split": "paper", "task": "unistep"}),
        ("multistep MPIW at most", "mpiw", 1.30, {**OURS, "split": "paper", "task": "multistep"}),
        ("unistep mse", "mse", 0.12, {**OURS, "split": "paper", "task": "unistep"}),
        ("multistep PICP between", "picp", 0.985, {**OURS, "dataset": "stock", "split": "chronological"}),
        ("multistep CRPS below every", "crps", 0.2, {**OURS, "dataset": "energy", "split": "chronological"}),
        ("multistep Winkler", "winkler", 9.0, {**OURS, "dataset": "energy", "split": "chronological"}),
        ("multistep CRPS below the best", "crps", 0.336, {**OURS, "dataset": "air_quality", "split": "chronological"}),
    ],
)
def test_a_target_is_missed_when_its_numbers_are(rows, target, metric, value, wanted):
    change(rows, metric, value, **wanted)
    after = verdicts(rows)
    assert "missed" in {verdict for (name, _), verdict in after.items() if name.startswith(target)}


def test_a_better_baseline_flips_the_comparison(rows):
    change(rows, "crps", 0.001, model="naive", dataset="weather", split="chronological")
    assert verdicts(rows)["multistep CRPS below every baseline's", "best"] == "missed"


def test_baselines_that_do_not_underestimate_are_said(rows):
    change(rows, "dist_mse", 0.4, model="bayesian_lstm_3", dataset="model1")
    assert set(verdicts(rows, "baselines").values()) == {"missed"}


def test_too_few_seeds_leave_a_target_open(rows):
    few = [row for row in rows if row["split"] != "chronological" or row["seed"] == 0]
    assert verdicts(few)["multistep PICP between 0.92 and 0.98", "best"] == "open"


def test_too_few_seeds_can_still_miss(rows):
    change(rows, "picp", 0.5, dataset="stock", split="chronological", **OURS)
    few = [row for row in rows if row["split"] != "chronological" or row["seed"] == 0]
    assert verdicts(few)["multistep PICP between 0.92 and 0.98", "best"] == "missed"


def test_missing_data_sets_leave_a_target_open(rows):
    some = [row for row in rows if row["dataset"] != "stock"]
    after = verdicts(some)
    assert after["multistep PICP between 0.92 and 0.98", "best"] == "open"
    assert after["unistep MPIW at most 60 % of the paper's, on three", "best"] == "met"


def test_missing_baselines_leave_a_comparison_open(rows):
    some = [row for row in rows if row["model"] != "lstm_dropout_0.2"]
    assert verdicts(some)["multistep CRPS below every baseline's", "best"] == "open"


def test_without_the_true_distribution_the_nll_is_not_judged(rows):
    some = [row for row in rows if row["model"] != "bayes_optimal"]
    names = [name for name, _ in verdicts(some) if name.startswith("NLL")]
    assert names
    assert all(verdict == "open" for (name, _), verdict in verdicts(some).items() if name.startswith("NLL"))


@pytest.mark.parametrize(
    ("states", "needed", "verdict"),
    [
        ((True, True, True), 3, "met"),
        ((True, False, True), 3, "missed"),
        ((True, None, True), 3, "open"),
        ((True, None, True), 2, "met"),
        ((False, None, False), 2, "missed"),
        ((False, None, True), 2, "open"),
    ],
)
def test_verdicts_are_final_only_when_nothing_could_change_them(states, needed, verdict):
    conditions = {str(index): Condition("", state) for index, state in enumerate(states)}
    assert Check("target", "best", conditions, needed).verdict == verdict
