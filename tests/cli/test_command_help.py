"""Help and usage: fast, with an example, and exit codes that scripts can use."""

import subprocess
import sys

import pytest
from helpers.command_tables import fails, run

from smc_transformer.cli.app import commands

NAMES = [command.__name__.rpartition(".")[2] for command in commands()]
OF_FORECASTER = ("fit", "predict", "backtest", "score", "report", "stream")


@pytest.mark.parametrize("name", OF_FORECASTER)
def test_help_has_an_example(name, capsys):
    assert name in NAMES
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert f"smct {name}" in out.partition("example:")[2].replace("| smct", "smct")
    assert "%%" not in out


def test_help_waits_for_no_heavy_package():
    script = (
        "import sys\nfrom smc_transformer.cli import main\n"
        "for name in (None, *sys.argv[1:]):\n"
        "    try: main([name, '--help'] if name else ['--help'])\n"
        "    except SystemExit as stop: assert stop.code == 0\n"
        "heavy = {'torch', 'pandas', 'numpy', 'pyarrow', 'polars', 'matplotlib', 'rich', 'safetensors'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *NAMES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("foretell",),
        ("fit", "data.csv", "--out", "model"),  # without a horizon
        ("fit", "data.csv", "--out", "model", "--horizon", "0"),
        ("fit", "data.csv", "--out", "model", "--horizon", "4", "--config", "window"),
        ("predict", "model", "--level", "100"),
        ("predict", "model", "--data", "a.csv", "--new", "b.csv"),
        ("score", "model"),
        ("report", "model"),
        ("report", "model", "--out", "page.html", "--backtest", "2"),
        ("predict", "model", "--save"),
    ],
)
def test_wrong_usage_is_2(arguments, capsys, tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fails(capsys, 2, *arguments)


def test_a_model_that_is_not_there_is_1(capsys, tmp_path):
    for command in (("predict",), ("score", "--data", "x.csv"), ("stream",), ("backtest", "--data", "x.csv")):
        message = fails(capsys, 1, command[0], tmp_path / "nowhere", *command[1:])
        assert str(tmp_path / "nowhere") in message


def test_interrupted_is_130(capsys, monkeypatch, model):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("smc_transformer.forecaster.Forecaster.load", interrupted)
    code, _, err = run(capsys, "predict", model)
    assert (code, err) == (130, "interrupted\n")
