"""Help and usage: fast, with an example, and exit codes that scripts can use."""

import inspect
import logging
import os
import subprocess
import sys

import pytest
from helpers.command_tables import fails, run

from smc_transformer.cli.app import commands, make_parser
from smc_transformer.forecaster import Forecaster

NAMES = [command.__name__.rpartition(".")[2] for command in commands()]
OF_FORECASTER = ("fit", "predict", "backtest", "score", "report", "stream", "serve")


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


def test_wrong_usage_is_told_in_two_lines_and_no_command_is_answered_by_the_help(capsys):
    message = fails(capsys, 2, "fit", "data.csv")
    assert message.splitlines() == [
        "smct fit: error: the following arguments are required: --out, --horizon",
        "smct fit --help says how it is used",
    ]
    assert "a first forecast" in fails(capsys, 2)
    assert "such as 80" in fails(capsys, 2, "predict", "model", "--level", "0.8")


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (("fit",), "smct fit DATA --out OUT --horizon HORIZON [options]"),
        (("score",), "smct score MODEL (--data FILE | --new FILE) [options]"),
        (("experiment", "run"), "smct experiment run {synthetic,realworld,all} [options]"),
        ((), "smct COMMAND [options]"),
    ],
)
def test_the_help_begins_with_what_must_be_given(capsys, command, usage):
    _, out, _ = run(capsys, *command, "--help")
    assert out.splitlines()[0] == f"usage: {usage}"


@pytest.mark.parametrize("words", [("demo",), ("experiment", "run")])
def test_a_default_is_told_where_there_is_one(capsys, words):
    _, out, _ = run(capsys, *words, "--help")
    assert "(default: " in out
    assert "default: None" not in out
    assert "default: False" not in out


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


def test_verbose_shows_the_log_on_standard_error(model, tmp_path):
    """A compiler that fails at once: what it said is in the log at INFO."""
    environment = {**os.environ, "CC": "false", "SMC_TRANSFORMER_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "smc_transformer.cli", "predict", str(model), "--paths", "5"]
    loud, quiet = (
        subprocess.run(arguments, capture_output=True, text=True, env=environment)
        for arguments in ([*command, "--verbose"], command)
    )
    before_the_command = make_parser().parse_args(["--verbose", "predict", "model"])
    assert before_the_command.verbose  # the same option
    for done in (loud, quiet):
        assert done.returncode == 0
        assert done.stdout == quiet.stdout
        assert "the particle filter runs in torch" in done.stderr
        assert ("what the compiler said" in done.stderr) == (done is not quiet)


@pytest.mark.parametrize("words", [(), ("fit",), ("stream",), ("data", "list"), ("experiment", "run")])
def test_every_command_has_the_option(words, capsys):
    code, out, _ = run(capsys, *words, "--help")
    assert code == 0
    assert out.count("--verbose  ") == 1


def test_the_log_is_silent_again_after_a_command(capsys, model):
    assert run(capsys, "predict", model, "--verbose")[0] == 0
    logger = logging.getLogger("smc_transformer")
    assert (logger.level, logger.handlers) == (logging.NOTSET, [])


@pytest.mark.parametrize(
    ("command", "method", "names"),
    [
        (("predict", "model"), "predict", {"level": "level", "paths": "n_paths", "horizon": "h", "seed": "seed"}),
        (("score", "model", "--data", "x.csv"), "score", {"level": "level"}),
        (
            ("backtest", "model", "--data", "x.csv"),
            "backtest",
            {"level": "level", "paths": "n_paths", "windows": "n_windows", "step": "step_size", "rolling": "rolling"},
        ),
        (
            ("fit", "x.csv", "--out", "model", "--horizon", "24"),  # a horizon must be said to the command
            "__init__",
            {name: name for name in ("input_size", "horizon", "freq", "calendar", "scaling", "seasons", "seed")}
            | {"target": "targets", "particles": "n_particles", "time": "time_column"},
        ),
        (("fit", "x.csv", "--out", "model", "--horizon", "24"), "fit", {"val_size": "val_size"}),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_defaults_are_those_of_python(command, method, names):
    options = make_parser().parse_args(command)
    signature = inspect.signature(getattr(Forecaster, method)).parameters
    for option, argument in names.items():
        found = getattr(options, option)
        assert (tuple(found) if isinstance(found, list) else found) == signature[argument].default, option
