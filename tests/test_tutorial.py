"""The tutorial runs, block by block, with a training of a few steps: its numbers are for people to look at."""

import re
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
SHORTER = {"Forecaster(horizon=14)": 'Forecaster(horizon=14, training={"likelihood_steps": 2, "forecast_steps": 2})'}


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    code = "\n".join(re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL))
    for long, short in SHORTER.items():
        assert code.count(long) == 1
        code = code.replace(long, short)
    names = {}
    exec(code, names)
    levels = ["y-lo-80", "y-hi-80", "y-lo-95", "y-hi-95"]
    assert names["table"].columns.tolist() == ["unique_id", "ds", "y", *levels]
    assert len(names["table"]) == 3 * 14
    assert (tmp_path / "forecast.png").read_bytes().startswith(b"\x89PNG")
    assert names["again"].series == ["harbour", "market", "station"]
    assert "season" in capsys.readouterr().out
