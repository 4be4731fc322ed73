"""The page that shows one task in several libraries: our own part runs. The adapters' parts run with their tests."""

import pytest
from helpers.doc_blocks import monthly_sales, python_of, train_shortly


@pytest.mark.slow
def test_our_part_runs(monkeypatch):
    train_shortly(monkeypatch)
    names = monthly_sales()
    exec(python_of("other_libraries.md", "Here"), names)
    assert names["forecast"].columns.tolist() == ["unique_id", "ds", "y", "y-lo-80", "y-hi-80"]
    assert len(names["forecast"]) == 24
    assert len(names["surprise"]) == 2
    assert names["scores"].columns.drop(["unique_id", "cutoff", "metric"]).tolist() == ["SMC"]
