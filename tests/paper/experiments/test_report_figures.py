"""What the figures draw is what the results hold; what needs training is trained once."""

import io
import math

import helpers.fabricated_results as fabricated
import pytest
import torch
from rich.console import Console

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smct_paper.baselines import BayesOptimal
from smct_paper.datasets import SYNTHETIC, load_windows
from smct_paper.experiments.report import figures
from smct_paper.experiments.report.figures.calibration import coverage_curve, pit_density
from smct_paper.experiments.report.figures.predictive import predictive_bands, predictive_figure
from smct_paper.experiments.report.figures.steps import picp_per_step, step_figure
from smct_paper.experiments.report.figures.style import line
from smct_paper.experiments.report.figures.unique import unique_counts
from smct_paper.experiments.report.results import MethodKey, Results, Row

METHOD = MethodKey("autoregression", "default")


def results_of(rows):
    return Results([Row.read(row) for row in rows])


def row(seed, **changes):
    return fabricated.make_row("covid", *METHOD, "chronological", "multistep", seed, {}, **changes)


def test_picp_of_each_step_is_averaged_over_seeds():
    rows = [row(0, per_step={"picp": [1.0, 0.8, None]}), row(1, per_step={"picp": [0.9, 0.9, None]})]
    first, second, third = picp_per_step(results_of(rows), "covid", "chronological", METHOD)
    assert (first, second) == pytest.approx((0.95, 0.85))
    assert math.isnan(third)
    assert step_figure(results_of(rows), "chronological") is not None
    assert step_figure(results_of(rows), "paper") is None


def test_pit_counts_of_all_seeds_make_one_density():
    rows = [row(0, pit=[1, 2, 3, 2]), row(1, pit=[2, 2, 2, 2]), row(2, pit=None)]
    density = pit_density(results_of(rows), "covid", "chronological", "multistep", METHOD)
    assert density == pytest.approx([0.75, 1.0, 1.25, 1.0])


def test_coverage_is_averaged_over_seeds():
    rows = [row(seed, coverage={"levels": [0.5, 0.9], "shares": [0.4 + seed, 0.8]}) for seed in (0, 1)]
    levels, shares = coverage_curve(results_of(rows), "covid", "chronological", "multistep", METHOD)
    assert levels == [0.5, 0.9]
    assert shares == pytest.approx([0.9, 0.8])


class TrueMethod(BayesOptimal):
    def one_step(self, x, generator):
        return SYNTHETIC["model1"].predictive(x)


class TruePoint(BayesOptimal):
    def one_step(self, x, generator):
        distribution = SYNTHETIC["model1"].predictive(x)
        distribution.interval = lambda level: None
        return distribution


def test_bands_of_the_true_distribution_are_the_true_bands():
    data = load_windows("model1", split="folds", fold=0)
    methods = {MethodKey("smc_transformer", "paper-10"): TrueMethod(), MethodKey("lstm", "paper"): TruePoint()}
    bands = predictive_bands(data, methods)
    ours, point = bands["methods"]
    assert (ours["lower"], ours["upper"]) == (bands["true"]["lower"], bands["true"]["upper"])
    assert (point["lower"], point["upper"]) == (None, None)
    width = torch.tensor(ours["upper"]) - torch.tensor(ours["lower"])
    torch.testing.assert_close(width, torch.full((24,), 2 * 1.95996 * 0.5**0.5), atol=2e-3, rtol=0)
    assert len(predictive_figure(bands).axes) == 2


def test_smoothers_keep_more_particles_than_the_genealogy():
    model = SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4), generator=0).eval()
    x = SYNTHETIC["model1"].sample(10, 20, generator=0)
    counts = {name: unique_counts(model, x, name, 2, 12).double() for name in ("genealogy", "fixed_lag", "backward")}
    assert all(count.shape == (10, 20) for count in counts.values())
    assert counts["fixed_lag"][:, 0].mean() > counts["genealogy"][:, 0].mean()
    assert counts["backward"][:, 0].mean() > counts["genealogy"][:, 0].mean()


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


def test_trained_figures_are_kept_and_drawn_again_without_training(tmp_path, monkeypatch, console):
    trainings = []

    def count(content):
        def train(console):
            trainings.append(content)
            return content

        return train

    monkeypatch.setattr(figures, "train_and_predict", count(fabricated.predictive_bands()))
    monkeypatch.setattr(figures, "train_and_count", count(fabricated.unique_particles()))
    results = results_of([row(0)])
    for _ in range(2):
        pictures = figures.write_figures(results, tmp_path, tmp_path, console, train=True)
        assert {picture.path.name for picture in pictures if picture.path} == {
            "predictive.png",
            "unique_particles_covid.png",
        }
    assert len(trainings) == 2
    monkeypatch.setattr(figures, "settings_of_counts", lambda: {"epochs": 6})  # what was kept is of other settings
    pictures = figures.write_figures(results, tmp_path, tmp_path, console, train=False)
    assert [picture.path.name for picture in pictures if picture.path] == ["predictive.png"]
    assert "unique_particles.json is missing or outdated" in " ".join(picture.caption for picture in pictures)
    figures.write_figures(results, tmp_path, tmp_path, console, train=True)
    assert len(trainings) == 3
    (tmp_path / "unique_particles.json").unlink()  # committed reports have the pictures, not what they were drawn from
    pictures = figures.write_figures(results, tmp_path, tmp_path, console, train=False)
    (old,) = (picture for picture in pictures if picture.path and picture.path.name == "unique_particles_covid.png")
    assert "Drawn by an earlier report." in old.caption
    assert len(trainings) == 3


def test_configurations_of_the_paper_are_dashed():
    configs = ("paper", "paper-30", "best-30")
    styles = {config: line(MethodKey("smc_transformer", config))["linestyle"] for config in configs}
    assert styles == {"paper": "--", "paper-30": "--", "best-30": "-"}
    assert line(MethodKey("lstm", "paper"))["linestyle"] == "-"


def test_missing_data_leave_out_a_figure_and_say_so(tmp_path, monkeypatch, console):
    def missing(console):
        raise FileNotFoundError("put covid_deaths_US.csv into some folder")

    monkeypatch.setattr(figures, "train_and_predict", missing)
    monkeypatch.setattr(figures, "train_and_count", missing)
    pictures = figures.write_figures(results_of([row(0)]), tmp_path, tmp_path, console, train=True)
    assert all(picture.path is None for picture in pictures)
    assert "some folder" not in " ".join(picture.caption for picture in pictures)
    assert "put covid_deaths_US.csv into some folder" in console.file.getvalue()
