"""Tables say what the rows say, and what is missing."""

import statistics

import helpers.fabricated_results as fabricated
import pytest

from smct_paper.experiments.report.cells import MISSING, NOT_RUN, number, to_markdown
from smct_paper.experiments.report.results import MethodKey, Results, Row
from smct_paper.experiments.report.tables.ingredients import ablation_table
from smct_paper.experiments.report.tables.intervals import interval_table
from smct_paper.experiments.report.tables.runs import grid_table, made_with, time_table
from smct_paper.experiments.report.tables.scores import crps_table, score_table
from smct_paper.experiments.report.tables.synthetic import synthetic_table


def results_of(rows):
    return Results([Row.read(row) for row in rows])


@pytest.fixture(scope="module")
def synthetic():
    return fabricated.synthetic_rows()


@pytest.fixture(scope="module")
def chronological():
    return fabricated.real_rows("chronological")


@pytest.fixture(scope="module")
def paper_split():
    return fabricated.real_rows("paper")


def chosen(rows, metric, **wanted):
    return [row["metrics"][metric] for row in rows if all(row[name] == value for name, value in wanted.items())]


def line(table, heading):
    return next(row for row in table.rows if row.heading == heading)


def column(table, title):
    return table.columns.index(title) - 1


def test_mean_and_deviation_over_folds(synthetic):
    table = synthetic_table(results_of(synthetic), "model2")
    values = chosen(synthetic, "mse", dataset="model2", model="lstm", task="unistep")
    (part,) = line(table, "LSTM").cells[column(table, "mse")].parts
    assert part.text == f"{statistics.mean(values):.3f}"
    assert part.spread == f"± {statistics.stdev(values):.3f}"


def test_synthetic_table_has_the_papers_numbers_and_the_optimum(synthetic):
    table = synthetic_table(results_of(synthetic), "model1")
    texts = [[part.text for part in cell.parts] for cell in line(table, "SMC Transformer (paper, M = 10)").cells]
    assert texts[1] == ["0.52"]
    assert texts[3] == ["0.49"]
    exact = [cell.parts[0].text for cell in line(table, "Bayes-optimal, exact").cells if cell.parts]
    assert exact == ["0.500", "0.50", "0.500", "0.50", "1.0724"]


def test_excess_of_nll_is_paired_by_fold(synthetic):
    """Folds differ by 0.01 nats, the method from the true distribution by 0.003 on each of them."""
    table = synthetic_table(results_of(synthetic), "model3")
    (part,) = line(table, "SMC Transformer (best, M = 30)").cells[-1].parts
    assert (part.text, part.spread) == ("+0.0030", "± 0.0000")


def test_without_the_true_distribution_the_excess_is_to_its_expectation(synthetic):
    rows = [row for row in synthetic if row["model"] != "bayes_optimal"]
    table = synthetic_table(results_of(rows), "model1")
    values = chosen(rows, "nll", dataset="model1", config="best-10", task="unistep")
    (part,) = line(table, "SMC Transformer (best, M = 10)").cells[-1].parts
    assert part.text == f"{statistics.mean(values) - 1.07236:+.4f}"
    assert any("not scored" in note for note in table.notes)


def test_point_forecasts_have_empty_places_not_dashes(synthetic):
    table = synthetic_table(results_of(synthetic), "model1")
    assert line(table, "LSTM").cells[column(table, "dist-mse")].parts == ()


def test_interval_table_marks_winners_by_the_rule(paper_split):
    rows = [
        fabricated.make_row("covid", model, config, "paper", "unistep", 0, {"mse": mse, "picp": picp, "mpiw": mpiw})
        for model, config, mse, picp, mpiw in (
            ("smc_transformer", "best", 0.2, 0.96, 0.5),
            ("smc_transformer", "paper", 0.3, 0.99, 0.9),
            ("lstm_dropout_0.1", "paper", 0.1, 0.94, 0.1),
        )
    ]
    table = interval_table(results_of(rows), "unistep")
    winners = {
        row.heading: [part.best for part in row.cells[0].parts]
        for row in table.rows
        if row.kind != "paper" and row.cells[0] != MISSING
    }
    assert winners == {
        "SMC Transformer (best)": [False, True],
        "SMC Transformer (paper)": [False, False],
        "LSTM, dropout 0.1": [True, False],
    }


def test_interval_table_has_the_papers_row_after_ours(paper_split):
    table = interval_table(results_of(paper_split), "unistep")
    headings = [row.heading for row in table.rows]
    assert headings[:3] == ["SMC Transformer (best)", "SMC Transformer (paper)", "SMC Transformer, in the paper"]
    theirs = line(table, "SMC Transformer, in the paper")
    assert [part.text for part in theirs.cells[0].parts] == ["0.128", "0.997 | 0.70"]
    assert line(table, "Transformer, dropout 0.1, in the paper").cells[0].parts[1].best


def test_interval_table_has_our_numbers(paper_split):
    table = interval_table(results_of(paper_split), "multistep")
    wanted = {"dataset": "energy", "model": "lstm_dropout_0.2", "task": "multistep"}
    mse, picp, mpiw = (statistics.mean(chosen(paper_split, name, **wanted)) for name in ("mse", "picp", "mpiw"))
    first, second = line(table, "LSTM, dropout 0.2").cells[column(table, "energy")].parts
    assert first.text == f"{mse:.3f}"
    assert second.text == f"{picp:.3f} | {mpiw:.3f}"


def test_both_bayesian_lstms_share_the_papers_row(paper_split):
    extra = [row | {"model": "bayesian_lstm_3"} for row in paper_split if row["model"] == "bayesian_lstm_10"]
    headings = [row.heading for row in interval_table(results_of(paper_split + extra), "unistep").rows]
    place = headings.index("Bayesian LSTM, M = 3")
    assert headings[place : place + 3] == [
        "Bayesian LSTM, M = 3",
        "Bayesian LSTM, M = 10",
        "Bayesian LSTM, in the paper",
    ]


@pytest.mark.parametrize("task", ["unistep", "multistep"])
def test_score_table_has_our_numbers_and_marks_the_best_crps(chronological, task):
    table = score_table(results_of(chronological), task, "weather")
    for heading, model in (("autoregression", "autoregression"), ("Bayesian LSTM, M = 10", "bayesian_lstm_10")):
        for title, metric in (("mse", "mse"), ("PICP", "picp"), ("CRPS", "crps"), ("Winkler", "winkler")):
            values = chosen(chronological, metric, dataset="weather", model=model, task=task)
            (part,) = line(table, heading).cells[column(table, title)].parts
            assert (part.text, part.spread) == (f"{statistics.mean(values):.3f}", f"± {statistics.stdev(values):.3f}")
    best = [row.heading for row in table.rows if any(part.best for cell in row.cells for part in cell.parts)]
    assert best == ["SMC Transformer (best)"]


def test_one_seed_has_no_deviation():
    rows = fabricated.real_rows("chronological", n_seeds=1)
    table = crps_table(results_of(rows), "multistep")
    assert all(part.spread == "" for row in table.rows for cell in row.cells for part in cell.parts)


def test_missing_cells_are_dashes_with_a_footnote(chronological):
    rows = [
        row for row in chronological if row["model"] != "lstm" and (row["dataset"], row["model"]) != ("stock", "naive")
    ]
    table = crps_table(results_of(rows), "multistep")
    assert line(table, "LSTM").cells == (MISSING,) * 5
    assert line(table, "naive forecast").cells[-1] == MISSING
    assert line(table, "naive forecast").cells[0] != MISSING
    assert table.notes[-1] == f"{NOT_RUN} not run: LSTM; naive forecast on stock."
    assert f"| LSTM | {NOT_RUN} |" in to_markdown(table)


def test_a_whole_grid_has_no_footnote(chronological):
    assert not any(NOT_RUN in note for note in crps_table(results_of(chronological), "multistep").notes)


def test_ablations_are_differences_paired_by_seed(chronological):
    table = ablation_table(results_of(chronological))
    wanted = {"dataset": "air_quality", "task": "multistep"}
    without = chosen(chronological, "crps", config="best-without_latent_noise", **wanted)
    best = chosen(chronological, "crps", config="best", **wanted)
    differences = [one - other for one, other in zip(without, best, strict=True)]
    part = line(table, "without latent noise").cells[column(table, "air quality")].parts[0]
    assert part.text == f"{statistics.mean(differences):+.3f}"
    assert part.spread == f"± {statistics.stdev(differences):.3f}"


def test_without_ablations_there_is_no_table(paper_split):
    assert ablation_table(results_of(paper_split)) is None


def test_times_count_a_training_once(chronological):
    table = time_table(results_of(chronological), "chronological")
    (part,) = line(table, "LSTM").cells[0].parts
    assert part.text == "0:14"  # the mean of 12.5, 13.5 and 14.5 seconds


def test_grid_says_what_was_run(synthetic):
    (row,) = grid_table(results_of([row for row in synthetic if row["dataset"] == "model1"])).rows
    assert [cell.parts[0].text for cell in row.cells] == ["quick", "17", "5", "100"]


def test_unknown_methods_are_shown_too(chronological):
    rows = [row | {"model": "own_method"} for row in chronological if row["model"] == "lstm"]
    table = crps_table(results_of(chronological + rows), "multistep")
    assert table.rows[-1].heading == "own method"


def test_missing_values_of_a_metric_are_left_out():
    rows = [
        fabricated.make_row("model1", "lstm", "paper", "folds", "unistep", fold, {"mse": value})
        for fold, value in enumerate((0.5, None, 0.7, float("nan")))
    ]
    average = results_of(rows).average("mse", dataset="model1", method=MethodKey("lstm", "paper"))
    assert average.mean == pytest.approx(0.6)
    assert average.repetitions == 2


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.123"), (-2.0, "-2.000"), (12345.0, "1.2e+04"), (float("inf"), "inf")]
)
def test_numbers(value, text):
    assert number(value) == text


def test_commits_of_one_set_of_versions_are_one_sentence(synthetic):
    of_one = {"torch": "2.13.0", "smc_transformer": "0.1.0"}
    versions = [
        {},
        of_one,
        of_one | {"commit": "b" * 40},
        of_one | {"commit": "a" * 40 + "-changed"},
        of_one | {"commit": "b" * 40},
        of_one | {"torch": "2.14.0"},
    ]
    rows = [row | {"versions": versions} for row, versions in zip(synthetic, versions, strict=False)]
    assert made_with(results_of(rows)) == [
        "made with torch 2.13.0, smc_transformer 0.1.0 (commits aaaaaaa-changed, bbbbbbb).",
        "made with torch 2.14.0, smc_transformer 0.1.0.",
    ]
