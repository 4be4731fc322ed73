"""The eight data sets under their names: small files in, windows out."""

import gzip
import sys

import numpy as np
import pytest
import torch
from helpers.excerpts import (
    hourly_jena_text,
    random_values,
    write_air_quality,
    write_covid,
    write_energy,
    write_stock,
)

from smct_paper.datasets import DATASETS, SYNTHETIC, DataFileError, load_windows

REAL = [name for name in DATASETS if name not in SYNTHETIC]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with one small file of each publisher, and no other folder."""
    monkeypatch.delenv("SMC_TRANSFORMER_DATA", raising=False)
    monkeypatch.setenv("SMC_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    air = random_values(300, 9)
    air[100:103] = np.nan
    write_air_quality(tmp_path / "AirQualityUCI.csv", air)
    jena = gzip.compress(hourly_jena_text(random_values(300, 4)).encode())
    (tmp_path / "jena_hourly_2009_2016_5col.csv.gz").write_bytes(jena)
    write_energy(tmp_path / "energydata_complete.csv", random_values(300, 28))
    write_stock(tmp_path / "stock_GE.csv", random_values(300, 5))
    write_covid(tmp_path / "covid_deaths_US.csv", np.random.default_rng(0).integers(1, 9, (40, 61)).cumsum(axis=1))
    return tmp_path


def test_the_table_of_data_sets():
    table = {
        name: (info.n_inputs, info.n_targets, info.window, info.history, info.horizon, info.batch_size)
        for name, info in DATASETS.items()
    }
    assert table == {
        "model1": (1, 1, 24, 12, 12, 32),
        "model2": (1, 1, 24, 12, 12, 32),
        "model3": (1, 1, 24, 12, 12, 32),
        "covid": (1, 1, 60, 40, 20, 32),
        "air_quality": (9, 5, 12, 6, 6, 64),
        "weather": (4, 4, 24, 12, 12, 256),
        "energy": (28, 20, 12, 6, 6, 128),
        "stock": (5, 5, 40, 20, 20, 64),
    }
    for info in DATASETS.values():
        assert info.file is None or not info.file.address or info.file.download in info.file.names


@pytest.mark.parametrize("split", ["chronological", "paper"])
@pytest.mark.parametrize("name", REAL)
def test_windows_have_the_shape_of_their_data_set(folder, name, split):
    info, windows = DATASETS[name], load_windows(name, split, data_dir=folder)
    for part in (windows.train, windows.validation, windows.test):
        assert part.shape[1:] == (info.window + 1, info.n_inputs)
        assert part.dtype == torch.float32
        assert len(part) > 0
        assert not part[:, 0].isnan().any()
    assert (windows.name, windows.split, windows.columns) == (name, split, info.columns)
    assert (windows.n_inputs, windows.length, windows.horizon) == (info.n_inputs, info.window, info.horizon)
    assert windows.n_targets == info.n_targets
    assert windows.n_modelled == (info.n_inputs if split == "chronological" else info.n_targets)
    missing = name == "air_quality" and split == "chronological"
    assert bool(windows.train.isnan().any()) == missing
    if name == "covid" and split == "paper":
        assert windows.mean is None
        assert windows.deviation is None
    else:
        assert windows.mean.shape == windows.deviation.shape == (info.n_inputs,)


def test_chronological_is_the_default_and_depends_on_the_seed_only_where_counties_are_shuffled(folder):
    for name in REAL:
        first = load_windows(name, data_dir=folder, seed=0)
        second = load_windows(name, data_dir=folder, seed=1)
        assert first.split == "chronological"
        assert first.test.nan_to_num().equal(second.test.nan_to_num()) == (name != "covid")


@pytest.mark.parametrize("name", list(SYNTHETIC))
def test_folds_share_nothing_and_together_are_all_sequences(name):
    sequences = SYNTHETIC[name].sample(1000, 24, 7)
    held_out = []
    for fold in range(5):
        windows = load_windows(name, "folds", fold=fold, seed=7)
        assert (windows.split, windows.n_modelled) == ("folds", 1)
        assert [len(part) for part in (windows.train, windows.validation, windows.test)] == [800, 100, 100]
        rest = torch.cat([windows.validation, windows.test])
        assert rest.equal(sequences[200 * fold : 200 * fold + 200])
        assert not torch.isin(rest[:, 1], windows.train[:, 1]).any()
        held_out.append(rest)
    assert torch.cat(held_out).equal(sequences)
    assert load_windows(name, seed=7).test.equal(load_windows(name, "folds", fold=0, seed=7).test)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "moon"}, "name must be one of 'model1'"),
        ({"name": "model1", "split": "paper"}, "split of model1 must be one of 'folds'"),
        ({"name": "stock", "split": "folds"}, "split of stock must be one of 'chronological', 'paper'"),
        ({"name": "stock", "fold": 1}, "fold of stock must be between 0 and 0, got 1"),
        ({"name": "model1", "fold": 5}, "fold of model1 must be between 0 and 4, got 5"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(folder, arguments, message):
    with pytest.raises(ValueError, match=message):
        load_windows(**arguments, data_dir=folder)


def test_files_that_are_too_short_are_named(folder):
    write_stock(folder / "stock_GE.csv", random_values(60, 5))
    with pytest.raises(DataFileError, match=r"stock_GE\.csv: the validation part has no windows"):
        load_windows("stock", data_dir=folder)


def test_without_pandas_the_error_names_the_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'smc-transformer\[experiments\]'"):
        load_windows("stock", data_dir=folder)
