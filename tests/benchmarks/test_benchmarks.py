"""The benchmarks run; no test asserts a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_benchmarks_run_at_tiny_sizes(tmp_path):
    out = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for row in json.loads(out.read_text()):
        assert set(row) == {"name", "size", "ratio", "target", "met"}


@pytest.mark.parametrize("name", ["proposals", "smoothers"])
def test_measurements_of_particles_run_at_tiny_sizes(name, tmp_path):
    command = [sys.executable, "-m", f"benchmarks.{name}", "--tiny", "--out", str(tmp_path / "rows.json")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert all("part" in row for row in json.loads((tmp_path / "rows.json").read_text()))


def test_the_noise_of_gradients_is_measured_for_every_estimator_and_smoother(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gradients", "--tiny", "--out", str(tmp_path / "rows.json")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for row in json.loads((tmp_path / "rows.json").read_text()):
        assert {"model", "pathwise", "score", "fixed_lag", "backward"} <= set(row)
        assert row["score"] != row["pathwise"] != row["backward"]
