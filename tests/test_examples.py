"""Every example runs, with a training of two steps: how good its forecasts are is for people to look at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smct_paper.datasets.air_quality import FILE
from smct_paper.datasets.files import find_file

EXAMPLES = Path(__file__).parents[1] / "examples"

SAID = {
    "quick_start": ("y-lo-95", "forecast.png"),
    "unequal_panel": ("a new room", None),
    "known_future": ("without a promotion", "promotion.png"),
    "going_on": ("the same to the last bit", None),
    "live_anomalies": ("faults caught", "anomalies.png"),
    "air_quality_sensors": ("picp", "air_quality.png"),
}
"""What each prints, and the picture it writes."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_the_example_runs(name, tmp_path):
    if name == "air_quality_sensors" and find_file(FILE) is None:
        pytest.skip("needs the file of UCI in SMC_TRANSFORMER_DATA")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), "2"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text, picture = SAID[name]
    assert text in done.stdout
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
