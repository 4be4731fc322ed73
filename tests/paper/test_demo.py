"""`smct demo`, short: what it prints and what it leaves in its folder."""

import io
import json
import sys
from contextlib import redirect_stdout

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from smc_transformer import Forecaster, cli
from smct_paper import demo
from smct_paper.demo import run_demo
from smct_paper.demo.known_distribution import run_known_distribution
from smct_paper.demo.simulated_panel import simulated_panel


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder and what was printed."""
    out, printed = tmp_path_factory.mktemp("demo") / "demo", io.StringIO()
    with redirect_stdout(printed):
        assert cli.main(["demo", "--epochs", "1", "--steps", "1", "--out", str(out)]) == 0
    return out, printed.getvalue()


@pytest.mark.slow
def test_it_prints_both_tables_of_scores_and_the_choices(shown):
    _, printed = shown
    for word in ("mse", "dist-mse", "PICP", "MPIW", "CRPS", "NLL", "Bayes-optimal"):
        assert word in printed
    for word in ("simulated", "seasonal naive", "'MS', which all times lie on", "12 rows", "month", "local"):
        assert word in printed


@pytest.mark.slow
def test_it_leaves_scores_pictures_the_panel_the_model_and_the_page(shown):
    out, _ = shown
    scores = json.loads((out / "scores.json").read_text())
    assert 0.45 < scores["model1"]["Bayes-optimal"]["mse"] < 0.55
    for name in ("predictive.png", "genealogy.png", "panel.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    pd.testing.assert_frame_equal(pd.read_csv(out / "panel.csv", parse_dates=["ds"]), simulated_panel(0))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Thirty simulated series" in page
    assert "winter-10" in page


@pytest.mark.slow
def test_the_saved_model_has_not_seen_the_last_year_and_has_the_score_that_was_told(shown):
    """The CRPS by its definition, pair by pair: mean |X - x| - mean |X - X'| / 2, of the loaded model's paths."""
    out, _ = shown
    panel = simulated_panel(0)
    paths = Forecaster.load(out / "model").simulate()
    assert paths["ds"].min() == pd.Timestamp("2024-01-01")
    errors = []
    for (name, time), own in paths.groupby(["unique_id", "ds"]):
        rows = panel[panel["unique_id"] == name]
        observed = rows.loc[rows["ds"] == time, "y"]
        if observed.notna().all() and len(observed):
            unit = rows.loc[rows["ds"] < "2024-01-01", "y"].mean()
            x, y = own["y"].to_numpy() / unit, observed.item() / unit
            errors.append(np.abs(x - y).mean() - np.abs(x[:, None] - x[None, :]).mean() / 2)
    told = json.loads((out / "scores.json").read_text())["panel"]["SMC Transformer"]["crps"]
    assert told == pytest.approx(np.mean(errors), rel=1e-6)


def test_without_matplotlib_there_are_still_scores(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    scores = run_known_distribution(tmp_path, epochs=1, console=Console())
    assert "they need matplotlib (pip install 'smc-transformer[plots]')" in capsys.readouterr().out
    assert set(scores) == {"SMC Transformer", "Bayes-optimal"}


def test_without_pandas_the_panel_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "smct_paper.demo.panel", None)
    monkeypatch.setattr(demo, "run_known_distribution", lambda out, **options: {"Bayes-optimal": {"mse": 0.5}})
    run_demo(tmp_path, console=Console())
    assert "it needs pandas" in capsys.readouterr().out
    assert json.loads((tmp_path / "scores.json").read_text()) == {"model1": {"Bayes-optimal": {"mse": 0.5}}}
