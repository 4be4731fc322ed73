"""Commands on engines: Parquet in, Parquet out; the grid of experiments on Dask."""

import importlib.util
import json
import os
import sys
from collections import deque

import numpy as np
import pandas as pd
import pytest
from helpers.engine_tables import ENGINES, assert_same_bits, in_order
from helpers.forecaster_tables import make, walks

from smc_transformer import cli
from smc_transformer.engines.running import EXTRAS

pytestmark = pytest.mark.filterwarnings("ignore")  # engines warn about themselves
needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="dask is not installed")


def days():
    table = walks(20, 24, 22)
    return table.assign(ds=pd.Timestamp("2024-02-01") + pd.to_timedelta(table["ds"], unit="D"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, a dataset of two files, and one with a series that cannot be used."""
    path = tmp_path_factory.mktemp("commands")
    table = days()
    make(freq="D").fit(table, progress=False).save(path / "model")
    wrong = table.assign(y=table["y"].mask(table["unique_id"] == "b", np.inf))
    for name, rows in (("data", table), ("wrong", wrong)):
        (path / name).mkdir()
        rows.iloc[:30].to_parquet(path / name / "0.parquet")
        rows.iloc[30:].to_parquet(path / name / "1.parquet")
    wrong.to_csv(path / "wrong.csv", index=False)
    return path


def predict(folder, *options):
    return cli.main(["predict", str(folder / "model"), "--paths", "20", "--level", "80", *map(str, options)])


@pytest.fixture(params=ENGINES)
def engine(request):
    """The options for a cluster that runs; it takes datasets without being told where it is, but for Dask."""
    cluster = request.getfixturevalue(request.param)
    return ("--engine", cluster.name, *(("--address", cluster.address) if cluster.name == "dask" else ()))


def test_a_dataset_is_forecast_by_an_engine(folder, tmp_path, engine):
    assert predict(folder, *engine, "--data", folder / "data", "--out", tmp_path / "out") == 0
    assert_is_the_forecast(folder, tmp_path / "out")
    assert predict(folder, *engine, "--data", folder / "data", "--out", tmp_path / "out") == 1  # it exists


def assert_is_the_forecast(folder, out):
    expected = make().load(folder / "model").predict(days(), n_paths=20, level=[80])
    assert_same_bits(in_order(pd.read_parquet(out)), in_order(expected))


@needs_dask
def test_without_an_address_dask_has_workers_of_this_machine(folder, tmp_path):
    assert predict(folder, "--engine", "dask", "--data", folder / "data", "--out", tmp_path / "out") == 0
    assert_is_the_forecast(folder, tmp_path / "out")


def test_a_series_that_cannot_be_used_is_told_in_a_line(folder, tmp_path, engine, capsys):
    assert predict(folder, *engine, "--data", folder / "wrong", "--out", tmp_path / "out") == 1
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("smct")]
    assert "series 'b', column 'y' is infinite" in said


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_is_not_there_is_told_by_its_extra(folder, tmp_path, monkeypatch, capsys, name):
    monkeypatch.setitem(sys.modules, EXTRAS[name], None)
    assert predict(folder, "--engine", name, "--data", folder / "data", "--out", tmp_path / "out") == 1
    assert f"pip install 'smc-transformer[{name}]'" in capsys.readouterr().err


def test_series_that_cannot_be_used_are_written_elsewhere(folder, tmp_path, engine):
    options = ("--data", folder / "wrong", "--out", tmp_path / "out", "--errors", tmp_path / "errors")
    assert predict(folder, *engine, *options) == 0
    assert sorted(pd.read_parquet(tmp_path / "out")["unique_id"].unique()) == ["a", "c"]
    errors = pd.read_parquet(tmp_path / "errors")
    assert errors["unique_id"].tolist() == ["b"]
    assert "infinite" in errors["error"].iloc[0]


def test_errors_are_collected_without_an_engine(folder, tmp_path):
    options = ("--data", folder / "wrong.csv", "--out", tmp_path / "out.csv", "--errors", tmp_path / "errors.csv")
    assert predict(folder, *options) == 0
    assert sorted(pd.read_csv(tmp_path / "out.csv")["unique_id"].unique()) == ["a", "c"]
    assert pd.read_csv(tmp_path / "errors.csv")["unique_id"].tolist() == ["b"]


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--engine", "dask"), 2, "give both"),
        (("--engine", "dask", "--data", "x", "--out", "y", "--total"), 2, "without questions"),
        (("--address", "tcp://here:1"), 2, "--address is that of an --engine"),
    ],
)
def test_options_that_do_not_go_together(folder, capsys, options, code, text):
    assert predict(folder, *options) == code
    assert text in capsys.readouterr().err


def doubled(cell, profile, data_dir):
    """A stand-in for the work on a cell."""
    if cell.seed == 1:
        raise ValueError("no luck")
    return {"seed": cell.seed, "process": os.getpid()}


def test_cells_run_on_a_dask_cluster_and_are_stored_here(dask):
    from smct_paper.experiments.dask_workers import work_through_dask
    from smct_paper.experiments.grid import Choice, select_cells
    from smct_paper.experiments.profiles import QUICK

    queue = deque(select_cells("synthetic", QUICK, Choice(datasets=["model1"], models=["naive"], seeds=4)))
    answers, began = {}, []

    def ended(cell, answer):
        answers[cell.seed] = answer

    work_through_dask(queue, (QUICK, None), dask.address, doubled, began.append, ended)
    assert not queue
    assert len(began) == 4
    assert "no luck" in answers.pop(1)["error"]
    assert {seed: answer["seed"] for seed, answer in answers.items()} == {0: 0, 2: 2, 3: 3}
    assert os.getpid() not in {answer["process"] for answer in answers.values()}


def test_a_grid_on_dask_is_resumed_as_before(dask, tmp_path, capsys):
    options = ("--dataset", "model1", "--model", "naive", "--out", str(tmp_path), "--engine", "dask")
    command = ["experiment", "run", "synthetic", *options, "--address", dask.address]
    assert cli.main([*command, "--seeds", "1"]) == 0
    assert "1 cells finished, 0 failed" in capsys.readouterr().out
    first = {path: path.read_bytes() for path in tmp_path.rglob("*.json") if path.name != "results.json"}
    assert len(first) == 1
    assert cli.main([*command, "--seeds", "2"]) == 0  # the first is not done again
    assert "1 cells finished, 0 failed" in capsys.readouterr().out
    after = {path: path.read_bytes() for path in tmp_path.rglob("*.json") if path.name != "results.json"}
    assert len(after) == 2
    assert first.items() <= after.items()
    # What a process here finds, the cluster has found: a cell does not know where it runs.
    here = tmp_path / "here"
    here_options = ["--dataset", "model1", "--model", "naive", "--seeds", "2", "--out", str(here)]
    assert cli.main(["experiment", "run", "synthetic", *here_options]) == 0
    for path, text in after.items():
        there, own = json.loads(text), json.loads((here / path.relative_to(tmp_path)).read_text())
        assert there["tasks"] == own["tasks"]


def test_a_grid_without_dask_names_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    options = ("--dataset", "model1", "--model", "naive", "--seeds", "1", "--out", str(tmp_path), "--engine", "dask")
    assert cli.main(["experiment", "run", "synthetic", *options]) == 1
    assert "pip install 'smc-transformer[dask]'" in capsys.readouterr().err
