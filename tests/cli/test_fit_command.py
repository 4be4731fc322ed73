"""`smct fit`: tables of several kinds in, a model out, and mistakes named."""

import io
import json
import sys

import pandas as pd
import polars as pl
import pytest
from helpers.command_tables import QUICK, fails, run, run_json, waves, write

from smc_transformer.cli.tables import read_table
from smc_transformer.forecaster import Forecaster


def test_a_fit_says_what_it_found(capsys, tmp_path):
    data = write(waves(40).assign(x=1.0), tmp_path / "data.csv.gz")
    options = ("--calendar", "hour", "--past-inputs", "x", "--scaling", "y=robust", "x=none", "--seed", "3")
    code, out, _ = run(capsys, "fit", data, *QUICK, *options, "--out", tmp_path / "model")
    assert code == 0
    assert "frequency: 'h', which all times lie on" in out
    assert "1 series, 40 rows" in out
    settings = Forecaster.load(tmp_path / "model").settings
    assert (settings.freq, settings.horizon, settings.input_size, settings.seed) == ("h", 4, 10, 3)
    assert (settings.calendar, settings.past_inputs) == (("hour",), ("x",))
    assert settings.scaling == {"y": "robust", "x": "none"}
    assert settings.config == {"d_model": 8, "d_ff": 8, "window": 6, "n_particles": 4}
    assert settings.training_settings().likelihood_steps == settings.training_settings().forecast_steps == 2


def test_one_series_of_whole_number_times_from_standard_input(capsys, tmp_path, monkeypatch):
    table = pd.DataFrame({"day": range(0, 80, 2), "sold": [3, -200, *range(38)]})
    text = io.TextIOWrapper(io.BytesIO(table.to_csv(index=False, sep=";").encode()))
    monkeypatch.setattr(sys, "stdin", text)
    columns = ("--target", "sold", "--time", "day", "--separator", ";", "--missing", "-200", "-99")
    found = run_json(capsys, "fit", "-", *QUICK, *columns, "--out", tmp_path / "model")
    assert (found["freq"], found["freq_inferred"], found["rows"], found["series"]) == (2, True, 40, 1)
    assert found["training"]["n_windows"] > 0
    assert Forecaster.load(tmp_path / "model").series == ["series"]
    # A table without names is that one series later on, too.
    code, out, _ = run(capsys, "predict", tmp_path / "model", "--data", write(table, tmp_path / "table.csv"))
    assert code == 0
    assert out.splitlines()[1].startswith("series,80,")


def test_names_that_look_like_numbers_stay_as_they_are(capsys, tmp_path):
    table = waves(30, 30).assign(shop=["007"] * 30 + ["8"] * 30)
    data = write(table.drop(columns="unique_id"), tmp_path / "data.tsv.bz2")
    pd.read_csv(data).to_csv(data, index=False, sep="\t")
    table.drop(columns="unique_id").to_csv(data, index=False, sep="\t")
    run_json(capsys, "fit", data, *QUICK, "--id", "shop", "--out", tmp_path / "model")
    assert Forecaster.load(tmp_path / "model").series == ["007", "8"]
    found = run_json(capsys, "predict", tmp_path / "model", "--data", data)
    assert [row["shop"] for row in found["forecast"]] == ["007"] * 4 + ["8"] * 4


def test_models_with_whole_numbers_as_names_find_them(capsys, tmp_path):
    forecaster = Forecaster(
        input_size=10,
        horizon=2,
        config={"d_model": 8, "d_ff": 8},
        training={"likelihood_steps": 1, "forecast_steps": 0},
    )
    forecaster.fit(waves(30).assign(unique_id=7), progress=False).save(tmp_path / "model")
    data = write(waves(30).assign(unique_id=7), tmp_path / "data.csv")
    assert run_json(capsys, "predict", tmp_path / "model", "--data", data)["forecast"][0]["unique_id"] == 7


def test_parquet_in_and_out(capsys, tmp_path):
    """The same forecasts as from CSV, through files of polars and of pandas, plain and packed."""
    table = waves(40)
    text = write(table, tmp_path / "data.csv")
    pl.from_pandas(table).write_parquet(tmp_path / "data.parquet", compression="zstd")
    assert run_json(capsys, "fit", tmp_path / "data.parquet", *QUICK, "--out", tmp_path / "model")["rows"] == 40
    run_json(capsys, "fit", text, *QUICK, "--out", tmp_path / "other")
    for model in ("model", "other"):
        options = (tmp_path / model, "--data", tmp_path / "data.parquet", "--paths", 20)
        assert run(capsys, "predict", *options, "--out", tmp_path / f"{model}.parquet.gz")[0] == 0
    one, other = (read_table(tmp_path / f"{model}.parquet.gz") for model in ("model", "other"))
    pd.testing.assert_frame_equal(one, other)
    assert one["ds"].dtype == table["ds"].dtype
    assert run(capsys, "score", tmp_path / "model", "--data", text, "--out", tmp_path / "score.parquet")[0] == 0
    assert len(read_table(tmp_path / "score.parquet")) == 39
    # A format of times is for text: a file that holds times as such needs none.
    found = run_json(capsys, "predict", *options, "--time-format", "%d/%m/%Y")
    assert found["forecast"][0]["ds"] == "2024-01-02T16:00:00"


def test_parquet_with_dates(capsys, tmp_path):
    table = waves(40).assign(ds=pd.date_range("2024-01-01", periods=40).date)
    table.to_parquet(tmp_path / "data.parquet")
    found = run_json(capsys, "fit", tmp_path / "data.parquet", *QUICK, "--out", tmp_path / "model")
    assert found["freq"] == "D"


def test_parquet_says_what_is_needed(capsys, tmp_path, monkeypatch):
    waves(40).to_parquet(tmp_path / "data.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install" in fails(capsys, 1, "fit", tmp_path / "data.parquet", *QUICK, "--out", tmp_path / "model")


def _without(column):
    return waves(30).drop(columns=column)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (_without("y"), ["which column is to be forecast?", "none called 'y'", "--target sales"]),
        (_without("ds"), ["no column 'ds'; it has ['unique_id', 'y']", "--time"]),
        (_without("ds").drop(columns="unique_id").assign(n=1), ["no column 'ds'; it has ['y', 'n']"]),
        (waves(30).assign(y=["one"] * 30), ["column 'y'", "'one'", "row 0"]),
        (waves(30).iloc[[0, 2, 1, *range(3, 30)]], ["series 'a'", "not sorted", "row 1"]),
        (waves(30).iloc[[0, 1, 1, *range(2, 30)]], ["series 'a'", "same time", "row 1"]),
        (waves(30).assign(ds=["yesterday"] * 30), ["column 'ds'", "row 0", "yesterday", "--time-format"]),
        (waves(30).assign(ds=[None] * 5 + list(range(25))), ["column 'ds'", "row 0"]),
        (waves(30).assign(ds=[0.5 + row for row in range(30)]), ["column 'ds'", "float64"]),
        (waves(30).assign(y=float("inf")), ["series 'a'", "column 'y'", "infinite"]),
        (waves(30).iloc[:0], ["no rows"]),
        (
            waves(30).assign(ds=pd.to_datetime("2024-01-01") + pd.to_timedelta([n * n for n in range(30)], "min")),
            ["no regular grid"],
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_said_in_one_line(table, words, capsys, tmp_path):
    data = write(table, tmp_path / "data.csv")
    message = fails(capsys, 1, "fit", data, *QUICK, "--out", tmp_path / "model")
    assert message.startswith(f"smct: {data}: ")
    for word in words:
        assert word in message
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("contents", [b"", b"\xff\xfe\x00", b"a,b\n1,2,3\n4,5,6,7\n"])
def test_files_that_are_no_tables(contents, capsys, tmp_path):
    (tmp_path / "data.csv").write_bytes(contents)
    assert "data.csv" in fails(capsys, 1, "fit", tmp_path / "data.csv", *QUICK, "--out", tmp_path / "model")
    (tmp_path / "data.csv.gz").write_bytes(contents)
    assert "data.csv.gz" in fails(capsys, 1, "fit", tmp_path / "data.csv.gz", *QUICK, "--out", tmp_path / "model")
    said = fails(capsys, 1, "fit", tmp_path / "nowhere.csv", *QUICK, "--out", tmp_path / "model")
    assert said == f"smct: {tmp_path / 'nowhere.csv'}: No such file or directory\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--freq", "fortnightly"),
        ("--target", "ds"),
        ("--scaling", "loudly"),
        ("--scaling", "y"),
        ("--scaling", "y=none", "z"),
        ("--config", "depth=3"),
        ("--training", "patience=3"),
    ],
)
def test_settings_that_make_no_sense_are_wrong_usage(options, capsys, tmp_path):
    data = write(waves(30), tmp_path / "data.csv")
    err = fails(capsys, 2, "fit", data, *QUICK, *options, "--out", tmp_path / "model")
    assert err.count("\n") == 1


@pytest.mark.parametrize("options", [("--separator", "(("), ("--decimal", "5"), ("--decimal", "")])
def test_formats_that_make_no_sense_are_wrong_usage(options, capsys, tmp_path):
    data = write(waves(30), tmp_path / "data.csv")
    fails(capsys, 2, "fit", data, *QUICK, *options, "--out", tmp_path / "model")


def test_something_else_is_not_overwritten(capsys, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("important")
    data = write(waves(30), tmp_path / "data.csv")
    monkeypatch.setattr(Forecaster, "fit", None)  # it is said before the time is spent
    assert str(tmp_path) in fails(capsys, 1, "fit", data, *QUICK, "--out", tmp_path)
    assert json.dumps((tmp_path / "notes.txt").read_text()) == '"important"'
