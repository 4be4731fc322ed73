"""The Python of the README runs, in order, with the tables and the network that its reader is assumed to have."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.user_encoders import MovingAverages

README = Path(__file__).parents[1] / "README.md"
SHORTER = {  # trainings of a few steps
    "Forecaster(horizon=12)": 'Forecaster(horizon=12, training={"likelihood_steps": 2, "forecast_steps": 2})',
    "epochs=10": "epochs=1",
}


def daily_sales(first, n_days):
    days = pd.date_range(first, periods=n_days, freq="D")
    random = np.random.default_rng(0)
    return pd.concat(pd.DataFrame({"unique_id": shop, "ds": days, "y": random.normal(9, 1, n_days)}) for shop in "ab")


@pytest.mark.slow
def test_the_snippets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the checkpoint is written
    code = "\n".join(re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL))
    for long, short in SHORTER.items():
        assert code.count(long) == 1
        code = code.replace(long, short)
    x = torch.randn(2, 9, 1)
    names = {
        "new_rows": daily_sales("2024-03-01", 2),
        "given": pd.DataFrame({"unique_id": ["a"], "ds": pd.to_datetime(["2024-03-05"]), "y": [10.0]}),
        "MyNetwork": lambda: MovingAverages(1, 32),
        "x_with_nan": x.index_fill(1, torch.tensor(4), torch.nan),
        "x_0": x[:1, 0],
    }
    daily_sales("2024-01-01", 60).to_csv("sales.csv", index=False)
    exec(code, names)
    assert names["paths"].shape == (len(names["test"]), 1000, 12, 1)
    assert (names["lower"] < names["upper"]).all()
    assert names["state"].n_observed == 1


def test_the_site_begins_with_the_first_snippet():
    first = r"```python\n.*?```"
    home = README.with_name("docs") / "README.md"
    found, expected = (re.search(first, path.read_text(encoding="utf-8"), re.DOTALL) for path in (home, README))
    assert found.group() == expected.group()
