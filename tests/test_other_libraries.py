"""The page that shows one task in several libraries: our own part runs, the others' where they are installed.

The parts of our adapters run with the tests of these.
"""

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


def run_part(heading, long, short):
    """What a block leaves, with the training shortened."""
    code, names = python_of("other_libraries.md", heading, level=3), monthly_sales()
    assert code.count(long) == 1
    exec(code.replace(long, short), names)
    return names


@pytest.mark.filterwarnings("ignore")  # of the other libraries
def test_the_part_of_neuralforecast_runs(tmp_path, monkeypatch):
    pytest.importorskip("neuralforecast")
    monkeypatch.chdir(tmp_path)  # where its logs go
    names = run_part("NeuralForecast", "NHITS(h=12,", "NHITS(max_steps=2, h=12,")
    told = ["unique_id", "ds", "NHITS-median", "NHITS-lo-80", "NHITS-hi-80"]
    assert names["forecast"].columns.tolist() == told
    assert str(names["forecast"]["ds"].min()) == "2024-01-01 00:00:00"
    assert str(names["again"]["ds"].min()) == "2024-02-01 00:00:00"


@pytest.mark.filterwarnings("ignore")
def test_the_part_of_darts_runs(tmp_path, monkeypatch):
    pytest.importorskip("darts")
    monkeypatch.chdir(tmp_path)
    names = run_part("Darts", "TiDEModel(24, 12,", "TiDEModel(24, 12, n_epochs=1,")
    assert [len(one) for one in names["low"]] == [12, 12]
    assert str(names["low"][0].start_time()) == "2024-01-01 00:00:00"
    assert [str(one.start_time()) for one in names["again"]] == 2 * ["2024-02-01 00:00:00"]


@pytest.mark.filterwarnings("ignore")
def test_the_part_of_gluonts_runs(tmp_path, monkeypatch):
    pytest.importorskip("gluonts.dataset")  # a folder of tests is called gluonts, too
    monkeypatch.chdir(tmp_path)
    shorter = 'DeepAREstimator(num_batches_per_epoch=2, trainer_kwargs={"max_epochs": 1}, freq="M",'
    names = run_part("GluonTS's DeepAR", 'DeepAREstimator(freq="M",', shorter)
    assert [one.samples.shape for one in names["forecasts"]] == 2 * [(100, 12)]
    assert [str(one.start_date) for one in names["forecasts"]] == 2 * ["2024-01"]
    assert [str(one.start_date) for one in names["again"]] == 2 * ["2024-02"]
