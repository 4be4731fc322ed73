"""The benchmark runs; no test asserts a time."""

import numpy as np
import pytest
from helpers.forecaster_tables import SHORT, TINY

from benchmarks import forecaster


@pytest.mark.parametrize("name", forecaster.CASES)
def test_benchmark_runs_at_a_tiny_size(monkeypatch, capsys, name):
    case = forecaster.CASES[name]
    rows = 2 * case.settings["horizon"] + 60
    tiny = {"n_series": 3, "shortest": rows, "longest": rows + (case.longest > case.shortest)}
    monkeypatch.setitem(forecaster.CASES, name, type(case)(**{**vars(case), **tiny}))
    monkeypatch.setattr(forecaster, "N_PATHS", 20)
    forecaster.main([name], config=TINY, training=SHORT)
    printed = capsys.readouterr().out
    assert f"predict, {case.settings['horizon']} steps, 20 paths" in printed
    assert f"(at most {case.at_most:g} s)" in printed
    assert "CRPS" in printed
    assert "nan" not in printed


def test_the_score_is_that_of_all_pairs():
    random = np.random.default_rng(0)
    paths, observed = random.normal(size=(2, 5, 3)), random.normal(size=(2, 3))
    observed[0, 1] = np.nan
    found = []
    for series, step in np.argwhere(~np.isnan(observed)):
        draws = paths[series, :, step]
        spread = np.mean([abs(one - other) for one in draws for other in draws])
        found.append(np.mean(abs(draws - observed[series, step])) - spread / 2)
    assert forecaster.crps(paths, observed) == pytest.approx(np.mean(found))


def test_panels_have_the_rows_and_gaps_they_should():
    case = forecaster.CASES["gaps"]
    before, after = forecaster.split(forecaster.panel(case), case.settings["horizon"])
    assert before.groupby("unique_id").size().eq(500).all()
    assert after.groupby("unique_id").size().eq(24).all()
    assert before["y"].isna().mean() == pytest.approx(0.1, abs=0.01)
    assert not before.groupby("unique_id")["y"].nth(0).isna().any()
    lengths = forecaster.split(forecaster.panel(forecaster.CASES["short"]), 24)[0].groupby("unique_id").size()
    assert lengths.between(70, 300).all()
    assert lengths.nunique() > 100
