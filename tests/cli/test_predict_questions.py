"""`smct predict` with a question: the answer of Python as a table, in files, on standard output and as JSON."""

import io

import pandas as pd
import pytest
from helpers.command_tables import fails, run, run_json

from smc_transformer.forecaster import Forecaster

PATHS = ("--paths", 200)

QUESTIONS = {
    "probability": (
        ("--probability", "y > 0.5 at any step and sum(y) < 60"),
        lambda forecast: forecast.probability("y > 0.5 at any step and sum(y) < 60"),
    ),
    "first_passage": (("--first-passage", "0.5"), lambda forecast: forecast.first_passage(0.5)),
    "from above": (
        ("--first-passage", "-0.25", "--below", "--target", "y"),
        lambda forecast: forecast.first_passage(-0.25, above=False, target="y"),
    ),
    "total": (("--total", "--level", 50, 90), lambda forecast: forecast.total([50, 90])),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_that_of_python(capsys, model, tmp_path, name):
    options, ask = QUESTIONS[name]
    expected = ask(Forecaster.load(model).forecast(n_paths=200))
    code, out, _ = run(capsys, "predict", model, *PATHS, *options)
    assert code == 0
    dates = ["ds"] if "ds" in expected else []
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(out), parse_dates=dates), expected, check_dtype=False)
    code, out, _ = run(capsys, "predict", model, *PATHS, *options, "--out", tmp_path / "answer.csv")
    assert code == 0
    assert out == f"{tmp_path / 'answer.csv'}: {len(expected)} rows\n"
    found = pd.read_csv(tmp_path / "answer.csv", parse_dates=dates)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    shown = run_json(capsys, "predict", model, *PATHS, *options)
    key = "first_passage" if name == "from above" else name
    assert set(shown) == {"horizon", "series", key}
    assert len(shown[key]) == len(expected)
    assert shown[key][0]["unique_id"] == "a"


def test_a_wrong_event_is_one_line_that_says_what_was_expected(capsys, model):
    message = fails(capsys, 1, "predict", model, "--probability", "y > 100 at some step")
    assert str(model) in message
    assert 'expected "any step", "every step" or "step N" after "at" but got \'some\' at character 12' in message
    assert "'x'" in fails(capsys, 1, "predict", model, "--first-passage", 1, "--target", "x")


@pytest.mark.parametrize(
    "options",
    [
        ("--probability", "y > 1 at step 1", "--total"),
        ("--first-passage", "1", "--total"),
        ("--first-passage", "high"),
        ("--first-passage", "nan"),
        ("--below",),
        ("--total", "--target", "y"),
    ],
)
def test_wrong_usage_is_2(capsys, model, options):
    assert fails(capsys, 2, "predict", model, *options)


def test_help_shows_how_events_are_written(capsys):
    _, out, _ = run(capsys, "predict", "--help")
    words = " ".join(out.split())
    for text in ("--probability EVENT", "'y > 100 at any step'", "'sum(y) > 500'", "--first-passage LEVEL", "--total"):
        assert text in words
