"""Every example runs, with a training of two steps: how good its forecasts are is for people to look at.

The quick start sets nothing, as a new user would, and so trains as long as the defaults do.
"""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.excerpts import write_covid

from smct_paper.datasets.air_quality import FILE
from smct_paper.datasets.files import find_file

EXAMPLES = Path(__file__).parents[1] / "examples"

STEPS = ("2",)
RUNS = {
    "quick_start": ((), "season 7", "forecast.png"),
    "unequal_panel": (STEPS, "a new room", None),
    "known_future": (STEPS, "without a promotion", "promotion.png"),
    "going_on": (STEPS, "the same to the last bit", None),
    "live_anomalies": (STEPS, "faults caught", "anomalies.png"),
    "air_quality_sensors": (STEPS, "picp", "air_quality.png"),
    "event_probability": (STEPS, "three days in a row above 88", None),
    "first_passage": (STEPS, "within a day with probability", None),
    "totals": (STEPS, "of the shops added up", None),
    "scenario": (STEPS, "independent ones", "scenario.png"),
    "own_encoder": (("1",), "truth:", None),
    "characters": (("--epochs", "1", "--windows", "32"), "SMC Transformer: perplexity", None),
    "covid_counts": (("--epochs", "1", "--data", "deaths.csv"), "heteroscedastic Gaussian", None),
}
"""The arguments of each, what it prints, and the picture it writes."""


def test_every_example_is_run():
    assert set(RUNS) == {path.stem for path in EXAMPLES.glob("*.py")}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_example_runs(name, tmp_path, monkeypatch, capsys):
    if name == "air_quality_sensors" and find_file(FILE) is None:
        pytest.skip("needs the file of UCI in SMC_TRANSFORMER_DATA")
    if name == "covid_counts":
        write_covid(tmp_path / "deaths.csv", np.random.default_rng(0).poisson(2.0, (20, 61)).cumsum(axis=1))
    arguments, text, picture = RUNS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    # In this process, which has torch already; a warning is an error, as in all tests.
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert text in capsys.readouterr().out
    if picture is not None:
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_without_its_file_the_air_quality_example_says_where_to_get_it(tmp_path):
    environment = {
        **{key: value for key, value in os.environ.items() if key != "SMC_TRANSFORMER_DATA"},
        "SMC_TRANSFORMER_CACHE": str(tmp_path),
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9"),
    }
    command = [sys.executable, str(EXAMPLES / "air_quality_sensors.py"), "2"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "SMC_TRANSFORMER_DATA" in done.stderr
    assert "Traceback" not in done.stderr
