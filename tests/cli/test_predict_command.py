"""`smct predict`, `backtest`, `score` and `report`: what Python says, as tables, JSON and pictures."""

import subprocess
import sys

import pandas as pd
import pytest
from helpers.command_tables import QUICK, fails, run, run_json, waves, write

from smc_transformer.cli.commands.score import most_surprising_first
from smc_transformer.forecaster import Forecaster

PNG = b"\x89PNG"


def rows_after(lengths, n_new, **changes):
    """Rows that come after those of `waves(*lengths)`."""
    longer = waves(*(length + n_new for length in lengths)).assign(**changes)
    return longer[
        longer.groupby("unique_id").cumcount() >= longer["unique_id"].map(dict(zip("ab", lengths, strict=False)))
    ]


def test_forecasts_are_those_of_python(capsys, model, tmp_path):
    expected = Forecaster.load(model).predict(level=[50, 97.5], quantiles=[0.1], n_paths=50, h=3)
    options = ("--level", 50, 97.5, "--quantile", 0.1, "--paths", 50, "--horizon", 3)
    code, out, _ = run(capsys, "predict", model, *options, "--out", tmp_path / "deep" / "forecast.csv.gz")
    assert code == 0
    assert "6 rows" in out
    found = pd.read_csv(tmp_path / "deep" / "forecast.csv.gz", parse_dates=["ds"])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    code, out, _ = run(capsys, "predict", model, *options)
    assert out.splitlines()[0] == "unique_id,ds,y,y-lo-50,y-hi-50,y-lo-97.5,y-hi-97.5,y-q-10"
    rows = run_json(capsys, "predict", model, *options)["forecast"]
    assert len(rows) == 6
    assert rows[0]["ds"] == "2024-01-04T08:00:00"
    assert rows[0]["y-hi-97.5"] == pytest.approx(expected["y-hi-97.5"][0])


def test_pictures(capsys, model, data, tmp_path):
    code, out, _ = run(capsys, "predict", model, "--data", data, "--plot", tmp_path / "deep" / "forecast.png")
    assert code == 0
    assert out.startswith("unique_id,ds,y,")
    assert "png" not in out  # standard output is the table
    assert (tmp_path / "deep" / "forecast.png").read_bytes().startswith(PNG)
    plot = ("--plot", tmp_path / "score.svg", "--out", tmp_path / "score.csv")
    code, out, _ = run(capsys, "score", model, "--data", data, *plot, "--series", "b")
    assert code == 0
    assert "score.svg: picture" in out
    assert "b: y" in (tmp_path / "score.svg").read_text() or "<svg" in (tmp_path / "score.svg").read_text()
    assert "'z'" in fails(capsys, 1, "predict", model, "--plot", tmp_path / "x.png", "--series", "z")
    assert "give --plot as well" in fails(capsys, 2, "predict", model, "--series", "a")
    message = fails(capsys, 1, "predict", model, "--plot", tmp_path / "x.docx", "--out", tmp_path / "x.csv")
    assert "x.docx" in message


def test_histories_and_new_rows(capsys, model, data, tmp_path):
    loaded = Forecaster.load(model)
    history = waves(50)
    found = run_json(capsys, "predict", model, "--data", write(history, tmp_path / "history.csv"))["forecast"]
    assert found[0]["y"] == pytest.approx(loaded.predict(history)["y"][0])
    new = rows_after((80, 60), 3)
    path = write(new, tmp_path / "new.csv")
    loaded.update(new)
    expected = loaded.predict()["y"].tolist()
    for save in ((), ("--save",)):
        found = run_json(capsys, "predict", model, "--new", path, *save)["forecast"]
        assert [row["y"] for row in found] == pytest.approx(expected)
    assert [row["y"] for row in run_json(capsys, "predict", model)["forecast"]] == pytest.approx(expected)
    assert "not after the last row known" in fails(capsys, 1, "predict", model, "--new", path)
    stranger = write(new.assign(unique_id="z"), tmp_path / "stranger.csv")
    message = fails(capsys, 1, "predict", model, "--new", stranger)
    for word in ("stranger.csv", "'unique_id'", "row 0", "'z'"):
        assert word in message


def test_future_inputs(capsys, tmp_path):
    data = write(waves(40).assign(price=2.0), tmp_path / "data.csv")
    model = tmp_path / "model"
    run_json(capsys, "fit", data, *QUICK, "--future-inputs", "price", "--out", model)
    future = rows_after((40,), 4, price=3.0).drop(columns="y")
    found = run_json(capsys, "predict", model, "--future", write(future, tmp_path / "future.csv"))
    assert len(found["forecast"]) == 4
    assert "price" in fails(capsys, 1, "predict", model)
    new = write(rows_after((40,), 1, price=3.0), tmp_path / "new.csv")
    assert "price" in fails(capsys, 1, "predict", model, "--new", new, "--save")
    assert "price" in fails(capsys, 1, "predict", model, "--new", new)  # nothing was kept of what did not succeed
    message = fails(capsys, 1, "predict", model, "--future", write(future[:2], tmp_path / "short.csv"))
    assert "short.csv" in message
    assert "'a'" in message


def test_scores_and_anomalies(capsys, model, data, tmp_path):
    expected = Forecaster.load(model).score(pd.read_csv(data, parse_dates=["ds"]), level=[80, 99.9])
    found = run_json(capsys, "score", model, "--data", data, "--level", 80, 99.9)
    assert found["values"] == len(expected) == 138
    assert found["scores"][5]["log_density"] == pytest.approx(expected["log_density"][5])
    assert found["scores"][5]["outside-80"] in (True, False)
    table = pd.read_csv(data, parse_dates=["ds"])
    table.loc[40, "y"] = 1000.0
    fault = write(table, tmp_path / "fault.csv")
    code, out, err = run(capsys, "score", model, "--data", fault, "--level", 99.9, "--anomalies")
    assert code == 0
    assert any(line.startswith("a,2024-01-02 16:00:00,y,1000.0,") for line in out.splitlines()[1:5]), out
    assert " of 138 values outside 99.9 % intervals" in err
    found = run_json(capsys, "score", model, "--new", write(rows_after((80, 60), 2), tmp_path / "new.csv"))
    assert found["values"] == 4


def test_surprises_of_different_units_are_comparable():
    found = pd.DataFrame(
        {
            "target": ["revenue", "rate", "revenue", "rate"],
            "pit": [0.004, 1 - 1e-5, 1.0, 0.0],
            "log_density": [-20.0, -3.0, -40.0, -30.0],
        }
    )
    assert most_surprising_first(found)["pit"].tolist() == [1.0, 0.0, 1 - 1e-5, 0.004]


def test_backtests(capsys, model, data, tmp_path):
    options = ("--data", data, "--windows", 2, "--step", 3, "--horizon", 2, "--paths", 20)
    found = run_json(capsys, "backtest", model, *options)
    assert len(found["forecasts"]) == 2 * 2 * 2
    assert set(found["forecasts"][0]) >= {"cutoff", "y-observed", "y", "y-lo-95", "y-crps", "y-pit"}
    assert found["metrics"][0]["target"] == "y"
    code, out, _ = run(capsys, "backtest", model, *options, "--out", tmp_path / "backtest.csv")
    assert code == 0
    assert "picp" in out
    assert len(pd.read_csv(tmp_path / "backtest.csv")) == 8
    assert run_json(capsys, "backtest", model, *options, "--plot", tmp_path / "deep" / "plot.png")["metrics"]
    assert (tmp_path / "deep" / "plot.png").read_bytes().startswith(PNG)
    message = fails(capsys, 1, "backtest", model, *options, "--plot", tmp_path / "x.png", "--series", "z")
    assert "'z'" in message
    message = fails(capsys, 1, "backtest", model, "--data", data, "--windows", 100)
    assert "too few" in message
    assert data in message


def test_the_report_page(capsys, model, data, tmp_path):
    page = tmp_path / "pages" / "report.html"
    options = ("--data", data, "--backtest", 1, "--title", "Waves & more", "--paths", 20, "--out", page)
    assert run_json(capsys, "report", model, *options) == {"page": str(page), "series": 2, "backtest": 1}
    assert "Waves &amp; more" in page.read_text()


def test_missing_packages_are_named_before_the_work(capsys, model, data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "pip install" in fails(capsys, 1, "predict", model, "--plot", tmp_path / "x.png")
    assert "pip install" in fails(capsys, 1, "report", model, "--data", data, "--out", tmp_path / "x.html")


def test_a_reader_that_goes_away_and_a_real_process(model):
    command = f"{sys.executable} -m smc_transformer.cli predict {model} --horizon 300 --paths 20 | head -n 2"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("unique_id,ds,y,")
    assert done.stderr == ""
    done = subprocess.run(
        [sys.executable, "-m", "smc_transformer.cli", "predict", model / "nowhere"], capture_output=True
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
