"""The paper's numbers, the ranking rule, and the exact optimum of the synthetic series."""

import pytest

from smct_paper.datasets.synthetic import SYNTHETIC
from smct_paper.experiments import paper_numbers
from smct_paper.experiments.paper_numbers import IntervalNumbers, best_paper_mse, paper_name
from smct_paper.experiments.report.optimum import optimum
from smct_paper.experiments.report.results import best_intervals, lowest


def test_numbers_of_the_paper_are_those_of_its_tables():
    assert paper_numbers.SYNTHETIC["lstm_dropout_0.2", "model1"] == (0.53, 0.0099)
    assert paper_numbers.SYNTHETIC["smc_transformer_30", "model2"] == (0.34, 0.35)
    assert paper_numbers.UNISTEP["lstm", "stock"] == IntervalNumbers(0.055, None, None)
    assert paper_numbers.UNISTEP["smc_transformer", "covid"] == IntervalNumbers(0.128, 0.997, 0.70)
    assert paper_numbers.UNISTEP["transformer_dropout_0.5", "energy"] == IntervalNumbers(0.09, 0.97, 1.00)
    assert paper_numbers.MULTISTEP["bayesian_lstm", "weather"] == IntervalNumbers(None, 0.27, 0.38)
    assert len(paper_numbers.SYNTHETIC) == 26
    assert len(paper_numbers.UNISTEP) == 50
    assert len(paper_numbers.MULTISTEP) == 40


def test_best_mse_of_the_paper():
    assert [best_paper_mse(name) for name in paper_numbers.REAL_DATASETS] == [0.116, 0.120, 0.076, 0.039, 0.055]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (("bayesian_lstm_10", "paper", "covid"), "bayesian_lstm"),
        (("bayesian_lstm_10", "paper", "model1"), "bayesian_lstm_10"),
        (("smc_transformer", "best", "stock"), "smc_transformer"),
        (("smc_transformer", "best-30", "model2"), "smc_transformer_30"),
        (("lstm_dropout_0.1", "paper", "model2"), "lstm_dropout_0.1"),
    ],
)
def test_rows_are_compared_with_the_right_row_of_the_paper(ours, theirs):
    assert paper_name(*ours) == theirs


def test_below_the_level_the_higher_coverage_wins():
    assert best_intervals({"narrow": (0.80, 0.1), "honest": (0.94, 5.0)}) == {"honest"}


def test_at_the_level_the_narrower_interval_wins():
    pairs = {"wide": (0.99, 2.0), "narrow": (0.95, 1.0), "short of it": (0.9499, 0.1)}
    assert best_intervals(pairs) == {"narrow"}


def test_reaching_the_level_beats_any_width():
    assert best_intervals({"covers": (0.96, 100.0), "does not": (0.949, 0.01)}) == {"covers"}


def test_ties_share_the_win_and_nothing_wins_among_none():
    assert best_intervals({"a": (0.96, 1.0), "b": (0.99, 1.0)}) == {"a", "b"}
    assert best_intervals({}) == set()
    assert lowest({"a": 1.0, "b": 0.5, "c": 0.5}) == {"b", "c"}


def test_the_rule_finds_the_winners_that_the_paper_marks():
    """Multistep, where the paper's bold pairs follow the rule."""
    for dataset, winner in (("air_quality", "smc_transformer"), ("weather", "smc_transformer")):
        pairs = {model: numbers[1:] for (model, name), numbers in paper_numbers.MULTISTEP.items() if name == dataset}
        assert best_intervals(pairs) == {winner}


@pytest.mark.parametrize(
    ("dataset", "mse", "nll"), [("model1", 0.5, 1.0724), ("model2", 0.324, None), ("model3", None, 0.382)]
)
def test_optimum_has_the_known_values(dataset, mse, nll):
    best = optimum(dataset)
    assert mse is None or best.mse == pytest.approx(mse, abs=5e-4)
    assert nll is None or best.nll == pytest.approx(nll, abs=5e-4)


@pytest.mark.parametrize("dataset", ["model1", "model2", "model3"])
def test_optimum_is_what_the_true_distribution_scores(dataset):
    x = SYNTHETIC[dataset].sample(20_000, 24, generator=0)
    distribution = SYNTHETIC[dataset].predictive(x)
    best = optimum(dataset)
    assert -float(distribution.log_prob(x[:, 1:]).mean()) == pytest.approx(best.nll, abs=0.006)
    assert float((distribution.mean - x[:, 1:]).square().mean()) == pytest.approx(best.mse, rel=0.02)
    samples = distribution.sample(4, generator=1)
    assert SYNTHETIC[dataset].distribution_mse(samples, x) == pytest.approx(best.dist_mse, rel=0.02)
