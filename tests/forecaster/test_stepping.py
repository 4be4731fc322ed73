"""The step as a pure function: bytes and rows in, bytes and answers out."""

import pytest
from helpers.forecaster_tables import make, walks

from smc_transformer.forecaster import SavedForecasterError
from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.rows import UnknownSeriesError
from smc_transformer.forecaster.stepping import Stepper


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    make().fit(walks(40, 30), progress=False).save(folder)
    return folder


@pytest.fixture(scope="module")
def stepper(folder):
    return Stepper(folder, n_paths=5)


def row(time, value=0.5, name="a"):
    return {"unique_id": name, "ds": time, "y": value}


def test_the_answers_are_those_of_a_service(stepper, folder, tmp_path):
    import shutil

    service = Service(shutil.copytree(folder, tmp_path / "model"), n_paths=5)
    given = [row(40), row(42, 0.1), row(43, None), row(44, 2.0)]
    expected = [one.answer for one in service.accept(given)]
    service.close()
    state = stepper.begin("a")
    _, together = stepper.step(state, given)
    assert together == expected
    found = []
    for one in given:
        state, answers = stepper.step(state, [one])
        found += answers
    assert found == expected
    assert state == stepper.step(stepper.begin("a"), given)[0]  # to the bit


def test_it_is_pure(stepper, folder):
    state, other = stepper.begin("a"), stepper.begin("b")
    first = stepper.step(state, [row(40)])
    stepper.step(stepper.begin("b"), [row(30, 12.0, "b")])
    stepper.step(first[0], [row(41)])
    assert stepper.step(state, [row(40)]) == first
    assert Stepper(folder, n_paths=5).step(state, [row(40)]) == first  # in another process, too
    assert (stepper.begin("a"), stepper.begin("b")) == (state, other)


def test_rows_that_cannot_be_taken_do_not_change_the_state(stepper):
    state, (answer,) = stepper.step(stepper.begin("a"), [row(40)])
    given = [row(40, 7.0), row(39), row(41, "x"), row(41, 1.0, "b"), 7, row(40)]
    after, answers = stepper.step(state, given)
    assert after == state
    kinds = [one["error"]["kind"] for one in answers[:-1]]
    assert kinds == ["conflict", "past", "invalid", "unknown series", "invalid"]
    assert answers[2]["error"]["column"] == "y"
    assert answers[-1] == answer  # the last row, sent again


def test_an_unknown_series_has_no_state(stepper):
    assert stepper.series == ["a", "b"]
    with pytest.raises(UnknownSeriesError, match="'z'"):
        stepper.begin("z")


def test_states_that_are_none_are_refused(stepper, tmp_path):
    state = stepper.begin("a")
    middle = len(state) // 2
    flipped = state[:middle] + bytes([state[middle] ^ 1]) + state[middle + 1 :]
    for wrong in (b"", b"x", state[:-1], state[: len(state) // 3], flipped, state[:8] + b"[" * 10_000):
        with pytest.raises(SavedForecasterError, match="the state"):
            stepper.step(wrong, [row(40)])
    other = make(seed=1).fit(walks(40), progress=False)
    other.save(tmp_path / "other")
    with pytest.raises(SavedForecasterError, match="another fit"):
        stepper.step(Stepper(tmp_path / "other").begin("a"), [row(40)])
