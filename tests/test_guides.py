"""The Python of the how-to guides runs, in order, with the tables that their reader is assumed to have."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.doc_blocks import DOCS, train_shortly

from smc_transformer import Forecaster, SMCTransformer, SMCTransformerConfig

pytestmark = pytest.mark.slow


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def hourly(last="2024-01-31 11:00", n_rows=120):
    """Two series; after one more row of each (`new_rows`) they end an hour before the row of docs/live.md."""
    times, random = pd.date_range(end=last, periods=n_rows, freq="h"), np.random.default_rng(0)
    return pd.concat(
        [pd.DataFrame({"unique_id": name, "ds": times, "y": 90 + random.normal(size=n_rows)}) for name in "ab"],
        ignore_index=True,
    )


def test_the_forecaster_its_questions_and_what_becomes_of_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train_shortly(monkeypatch)
    df = hourly()
    names = {
        "df": df,
        "given": pd.DataFrame({"unique_id": ["a"], "ds": pd.to_datetime(["2024-01-31 15:00"]), "y": [91.0]}),
        "new_rows": pd.DataFrame({"unique_id": ["a", "b"], "ds": pd.Timestamp("2024-01-31 12:00"), "y": [91.0, 90.5]}),
        "history": df,
    }
    for block in blocks("forecaster.md"):
        exec(block, names)
    asked, _ = blocks("questions.md")  # the other one is of two targets
    exec(asked, names)
    assert names["forecast"].paths.shape == (2, 4000, 12, 1)
    assert names["scenario"].mean["y"].iloc[2] == pytest.approx(91.0)
    (stepped,) = blocks("live.md")
    exec(stepped, names)
    assert len(names["answers"]) == 1
    shared, _ = blocks("sharing.md")  # MLflow is tested where it is installed
    pushed = 'huggingface.push_to_hub(forecaster, "owner/name")\n'
    assert shared.endswith(pushed)
    exec(shared.removesuffix(pushed), names)  # the Hub is elsewhere
    assert (tmp_path / "folder" / "config.json").exists()


def test_events_of_two_targets(monkeypatch):
    train_shortly(monkeypatch)
    table = hourly(n_rows=60).assign(z=lambda df: -df["y"])
    forecaster = Forecaster(horizon=4, input_size=10, targets=["y", "z"]).fit(table, progress=False)
    _, asked = blocks("questions.md")
    found = eval(asked, {"forecast": forecaster.forecast(n_paths=50)})
    assert found["probability"].between(0, 1).all()


def test_streams_of_a_model():
    model = SMCTransformer(SMCTransformerConfig(n_inputs=1, n_targets=1), generator=0)
    (streamed,) = blocks("streaming.md")
    names = {"model": model, "observations": torch.randn(3, 1, 1)}
    exec(streamed, names)
    assert names["state"].n_observed == 3
