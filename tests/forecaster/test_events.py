"""Events in words: what they mean, against plain loops, and errors that say what was expected and what was got."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smc_transformer.forecaster.events import EventError, parse_event

STEPS = 4
PATHS = {
    "y": np.array(list(itertools.product((-1.0, 0.0, 2.5), repeat=STEPS))),
    "net sales": np.array(list(itertools.product((0.0, 1.0, 2.0), repeat=STEPS)))[::-1],
}

MEANINGS = {
    "y > 2 at any step": lambda y, z: any(value > 2 for value in y),
    "y > -0.5 at every step": lambda y, z: all(value > -0.5 for value in y),
    "y >= 2.5 at step 3": lambda y, z: y[2] >= 2.5,
    "y<=-1 at step 1": lambda y, z: y[0] <= -1,
    "y == 0 at every step": lambda y, z: all(value == 0 for value in y),
    "y != 0 at any step": lambda y, z: any(value != 0 for value in y),
    "sum(y) > 1.5": lambda y, z: sum(y) > 1.5,
    "max(y) > 1": lambda y, z: max(y) > 1,
    "min ( y ) < -.5": lambda y, z: min(y) < -0.5,
    "mean(y) >= 2.5e-1": lambda y, z: sum(y) / 4 >= 0.25,
    "sum(y) > 2 from 2 to 3": lambda y, z: y[1] + y[2] > 2,
    "y > 0 at every step from 3 to 4": lambda y, z: y[2] > 0 and y[3] > 0,
    "y < 0 at any step from 1 to 1": lambda y, z: y[0] < 0,
    "'net sales' > 1 at step 2": lambda y, z: z[1] > 1,
    'Y > 1 At Any Step and sum("net sales") < 4'.replace("Y", "y"): lambda y, z: max(y) > 1 and sum(z) < 4,
    "y > 1 at step 1 or y > 1 at step 2 and `net sales` > 1 at step 3": lambda y, z: (
        y[0] > 1 or (y[1] > 1 and z[2] > 1)
    ),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_words_mean_what_a_loop_over_paths_says(text):
    found = parse_event(text, list(PATHS), STEPS).holds(PATHS)
    expected = [bool(MEANINGS[text](y, z)) for y, z in zip(*PATHS.values(), strict=True)]
    assert found.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_paths_of_many_series_at_once():
    values = {"y": np.random.default_rng(0).normal(size=(3, 5, 4))}
    event = parse_event("y > 1 at any step", ["y"], 4)
    np.testing.assert_array_equal(event.holds(values), [event.holds({"y": one}) for one in values["y"]])


def test_a_target_may_be_called_like_a_word_of_the_grammar():
    values = {"sum": np.array([[1.0, 3.0]]), "at": np.array([[2.0, 2.0]])}
    assert parse_event("sum > 2 at any step and at < 3 at every step", list(values), 2).holds(values).tolist() == [True]
    assert parse_event("sum(sum) > 5", list(values), 2).holds(values).tolist() == [False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a target, one of 'y', 'net sales', but got the end"),
        ("x > 3 at any step", "expected a target, one of 'y', 'net sales', but got 'x' at character 1"),
        ("net sales > 3 at any step", "but got 'net' at character 1"),
        ("y", "expected one of > >= < <= == != after 'y' but got the end"),
        ("y = 3 at any step", "but got '=' at character 3"),
        ("y > z at any step", "expected a number after '>' but got 'z' at character 5"),
        ("y > 1,000 at any step", "but got ',000' at character 6"),
        ("y > 10k at any step", "but got '10k' at character 5"),
        ("y > 3", 'expected "at any step", "at every step" or "at step N" after .* but got the end'),
        ("y > 3 at", 'expected "any step", "every step" or "step N" after "at" but got the end'),
        ("y > 3 at any time", 'expected "step" after "at any" but got \'time\' at character 14'),
        ("y > 3 at step 5", "expected the number of a step, from 1 to 4, but got '5' at character 15"),
        ("y > 3 at step 0", "from 1 to 4, but got '0'"),
        ("y > 3 at step 1.5", "from 1 to 4, but got '1.5'"),
        ("y > 3 at step -1", "from 1 to 4, but got '-1'"),
        ("y > 3 at any step from 3 to 2", "expected a step not before 3 but got '2' at character 29"),
        ("y > 3 at any step from 3", 'expected "to" after "from 3" but got the end'),
        ("sum(y) > 3 at any step", "sum.y. is one number of a whole path but got 'at' at character 12"),
        ("sum(y > 3", "expected \"\\)\" after sum.y but got '>' at character 7"),
        ("median(y) > 3", "expected a target, .* but got 'median'"),
        ("y > 3 at any step y", 'expected "and", "or" or the end but got \'y\' at character 19'),
        ("y > 3 at any step or", "expected a target, .* but got the end"),
        ("y > 3 at any step; import os", "but got ';' at character 18"),
        ("__import__('os').system('true')", "expected a target, .* but got .[.]system"),
    ],
)
def test_errors_say_what_was_expected_and_what_was_got(text, message):
    with pytest.raises(EventError, match=message):
        parse_event(text, list(PATHS), STEPS)


@given(st.lists(st.sampled_from(["y", "sum", "(", ")", ">", "<=", "3", "at", "any", "step", "from", "to", "1", "and"])))
def test_any_words_are_an_event_or_an_event_error(words):
    try:
        found = parse_event(" ".join(words), ["y"], STEPS).holds(PATHS)
    except EventError:
        return
    assert found.shape == (len(PATHS["y"]),)
