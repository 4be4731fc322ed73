import json

import numpy as np
import pytest
from helpers.excerpts import random_values, write_air_quality, write_stock

from smc_transformer.cli import main
from smct_paper.commands.data import NAMES
from smct_paper.datasets import DATASETS


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with two of the files, and no other folder; publishers cannot be reached."""
    monkeypatch.delenv("SMC_TRANSFORMER_DATA", raising=False)
    monkeypatch.setenv("SMC_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("pooch.HTTPDownloader", lambda **options: unreachable)
    values = random_values(300, 9)
    values[5] = np.nan
    write_air_quality(tmp_path / "AirQualityUCI.csv", values)
    write_stock(tmp_path / "stock_GE.csv", random_values(300, 5))
    return tmp_path


def unreachable(url, output_file, pooch):
    raise ConnectionError(f"no way to {url}")


def test_names_are_those_of_the_data_sets():
    assert tuple(DATASETS) == NAMES


def test_list_shows_every_data_set_and_where_its_file_is(folder, capsys):
    assert main(["data", "list", "--data-dir", str(folder)]) == 0
    shown = capsys.readouterr().out
    for info in DATASETS.values():
        assert info.name in shown
        assert info.publisher in shown
    assert str(folder / "stock_GE.csv") in shown
    assert shown.count("not found") == 3
    assert main(["data", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["energy"]["targets"] == 20
    assert rows["stock"]["file"] is None


def test_prepare_prints_what_came_out(folder, capsys):
    assert main(["data", "prepare", "air_quality", "--data-dir", str(folder)]) == 0
    shown = capsys.readouterr().out
    for text in ("AirQualityUCI.csv", "300", "2004-03-10 18:00:00", "AH 0.33%", "train 197, validation 33, test 33"):
        assert text in shown
    assert main(["data", "prepare", "model2"]) == 0
    assert "train 800" in capsys.readouterr().out


def test_prepare_in_json(folder, capsys):
    assert main(["data", "prepare", "stock", "--split", "paper", "--data-dir", str(folder), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["split"], row["rows"], row["gaps"], row["tested"]) == ("paper", 300, 0, False)
    assert row["span"] == ["2006-01-02 00:00:00", "2007-02-23 00:00:00"]
    assert row["windows"] == {"train": 182, "validation": 39, "test": 39}


def test_prepare_all_goes_on_after_a_failure_and_fails_at_the_end(folder, capsys):
    assert main(["data", "prepare", "all", "--data-dir", str(folder), "--json"]) == 1
    captured = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(captured.out)}
    assert [name for name, row in rows.items() if "error" in row] == ["covid", "weather", "energy"]
    messages = captured.err.splitlines()
    assert len(messages) == 3
    assert messages[0].startswith("smct: covid: covid_deaths_US.csv or time_series_covid19_deaths_US.csv is not in")
    assert "ConnectionError: no way to https://" in messages[0]


def test_failures_are_one_line_and_exit_code_1(folder, capsys):
    (folder / "stock_GE.csv").write_text("Date,Open\n2006-01-03,1\n")
    assert main(["data", "prepare", "stock", "--data-dir", str(folder)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "stock_GE.csv has no column 'High'" in error
    for action in (["list"], ["prepare", "stock"]):
        assert main(["data", *action, "--data-dir", str(folder / "nowhere")]) == 1
        assert "which is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["data"], ["data", "list"], ["data", "prepare"]])
def test_help_has_an_example(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert stop.value.code == 0
    assert "example" in capsys.readouterr().out
