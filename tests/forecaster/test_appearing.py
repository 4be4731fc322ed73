"""Series that appear: a row of a series that nobody knows begins it, as `Forecaster.update` would, and it stays."""

import itertools
import shutil

import pandas as pd
import pytest
from helpers.forecaster_tables import make, series, walks

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.fitted import Following
from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.folder import files
from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.rows import RowError
from smc_transformer.forecaster.stepping import Stepper

VALUES = [5.0, 5.5, 4.7, 4.0, 9.0, 5.2, 5.1, 4.9, 5.3]
WITH_GAPS = [5.0, 5.5, None, 4.0, 9.0, None, None, 4.9, 5.3]


@pytest.fixture
def begin(saved, tmp_path):
    """Services on copies of the model, closed in the end."""
    begun = []

    def begin(name="model", **settings):
        folder = tmp_path / name
        if not folder.exists():
            shutil.copytree(saved, folder)
        begun.append(Service(folder, **{"n_paths": 5, **settings}))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


def row(name, time, value=0.5):
    return {"unique_id": name, "ds": time, "y": value}


def state(fitted, name):
    """To the bit; but for what is said of a whole block, that no particle of any of its series was selected yet."""
    tensors, header = files.state_parts(fitted, "", [name])
    return header, {key: part.numpy().tobytes() for key, part in tensors.items() if "trajectories_are_own" not in key}


def updated(saved, rows, distrust=None):
    """What `Forecaster.update` makes of the same rows of new series."""
    forecaster = Forecaster.load(saved)
    forecaster.update(pd.DataFrame(rows).astype({"y": float}), distrust=distrust)
    return forecaster


def followed(saved, rows):
    """What `Forecaster.follow` makes of them: by a kernel for whole series, which may round otherwise."""
    return Forecaster.load(saved).follow(pd.DataFrame(rows).astype({"y": float}))


def test_a_series_of_one_row_has_a_forecast(begin, saved):
    service = begin(horizon=3, n_paths=1000)
    (found,) = service.accept([row("z", 7, 5.0)])
    assert found.is_new
    assert found.answer["surprise"] == []  # nothing has predicted it
    assert found.answer["new_series"] is True
    assert [one["ds"] for one in found.answer["forecast"]] == [8, 9, 10]
    expected = followed(saved, [row("z", 7, 5.0)]).predict(h=3)
    assert [one["y"] for one in found.answer["forecast"]] == expected["y"].tolist()
    (second,) = service.accept([row("z", 8, 5.1)])
    assert "new_series" not in second.answer
    assert second.answer["surprise"][0]["value"] == 5.1
    assert service.accept([row("z", 7, 5.0)]) == [found._replace(is_new=False)]
    assert service.accept([row("z", 7, 6.0)])[0].kind == "conflict"
    assert service.accept([row("z", 6)])[0].kind == "past"
    assert (service.n_series, service.accepted.n_begun) == (4, 1)


@pytest.mark.parametrize(("values", "distrust"), [(VALUES, None), (WITH_GAPS, None), (WITH_GAPS, 90)])
@pytest.mark.parametrize("how", ["one by one", "together", "killed", "saved", "retired"])
def test_the_numbers_are_those_of_an_update_to_the_bit(begin, saved, tmp_path, how, values, distrust):
    silence = {"retire_after": 10, "clock": itertools.count(0, 100).__next__} if how == "retired" else {}
    service = begin(distrust=distrust, n_paths=50, **silence)
    given = [row("z", 7 + place, value) for place, value in enumerate(values)]
    others = [row(name, 40 + place, 0.1 * place) for place in range(len(values)) for name in ("a", "b", "y")]
    if how == "together":
        found = service.accept([*others[:5], *given, *others[5:]])[5 : 5 + len(given)]
    else:
        found = []
        for place, one in enumerate(given):
            found += service.accept([*others[3 * place : 3 * place + 3], one])[-1:]
            if how == "killed" and place in (0, 1, 4):  # nothing is saved: all is replayed
                service.close()
                service = begin(distrust=distrust, n_paths=50)
            if how == "saved" and place in (0, 3):
                service.save()
                service.close()
                service = begin(distrust=distrust, n_paths=50)
            if how == "retired" and place in (0, 2, 5):
                assert service.retired.retire() >= 4
                assert "z" in service.retired.away
                assert service.n_series == 5
    service.find_series("z")  # in memory, for what follows
    expected = updated(saved, given, distrust)
    assert state(service.forecaster.fitted, "z") == state(expected.fitted, "z")
    pd.testing.assert_frame_equal(service.forecaster.predict(series="z"), expected.predict(series="z"))
    if distrust is None:
        near = followed(saved, given).predict()
        pd.testing.assert_frame_equal(service.forecaster.predict(series="z"), near, rtol=1e-5)
        scored = Forecaster.load(saved).score(pd.DataFrame(given).astype({"y": float}))
        surprises = [one for taken in found for one in taken.answer["surprise"]]
        assert [one["pit"] for one in surprises] == scored["pit"].tolist()
        assert [one["log_density"] for one in surprises] == scored["log_density"].tolist()
    service.close()
    loaded = Forecaster.load(tmp_path / "model").fitted
    assert state(loaded, "z") == state(expected.fitted, "z")
    assert sorted(loaded.following.series) == ["a", "b", "c", "y", "z"]


def test_a_model_that_is_saved_with_them_has_them(begin, tmp_path):
    service = begin()
    service.accept([row("z", 7, 5.0), row("z", 8, 5.0)])
    service.close()
    forecaster = Forecaster.load(tmp_path / "model")
    expected = state(forecaster.fitted, "z")
    forecaster.save(tmp_path / "model")
    assert state(Forecaster.load(tmp_path / "model").fitted, "z") == expected
    service = begin()
    assert service.accept([row("z", 9, 5.0)])[0].is_new
    assert service.accepted.n_begun == 1


def test_no_more_begin_than_may(begin):
    service = begin(new_series=2)
    given = [row("y", 1, None), row("x", 1), row("y", 1), row("z", 1), row("a", 40), row("x", 2)]
    found = service.accept(given)
    assert [one.kind if isinstance(one, RowError) else one.is_new for one in found] == [
        "invalid",  # it does not count
        True,
        True,
        "too many series",
        True,
        True,
    ]
    assert found[3].column == "unique_id"
    assert "new_series" in str(found[3])
    service.close()
    service = begin(new_series=2)  # in the life of the store
    assert service.accept([row("z", 1)])[0].kind == "too many series"
    assert service.accept([row("y", 2)])[0].is_new
    service.close()
    service = begin(new_series=3)
    assert service.accept([row("z", 1)])[0].is_new


def test_it_can_be_forbidden(begin):
    service = begin(new_series=0)
    (refused,) = service.accept([row("z", 1)])
    assert (refused.kind, str(refused)) == ("unknown series", "unknown series 'z'")
    assert (service.n_series, service.n_taken) == (3, 0)


def test_a_series_begins_with_a_complete_row(begin, saved):
    service = begin()
    early, first = service.accept([row("z", 6, None), row("z", 7, 5.0)])
    assert (early.kind, early.column) == ("invalid", "y")
    assert "is new" in str(early)
    assert first.is_new
    # `follow` begins there too.
    expected = followed(saved, [row("z", 6, None), row("z", 7, 5.0)])
    assert state(service.forecaster.fitted, "z") == state(expected.fitted, "z")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "1 to 200"),
        ("x" * 201, "1 to 200"),
        (" z", "space"),
        ("z\t", "space"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\x1b[2Jb", "control"),
        ("a\u2028b", "control"),
        ("a\ud800", "control"),
        (2**63, "below"),
        (["z", 1], "text or a whole number"),
    ],
)
def test_names_that_nobody_could_read_are_refused(begin, name, word):
    service = begin()
    (refused,) = service.accept([row(name, 1)])
    assert (refused.kind, refused.column) == ("unknown series", "unique_id")
    assert word in str(refused)
    assert service.n_series == 3


@pytest.mark.parametrize("name", ["Zürich 7/b", "温度", "x" * 200, "<b>&", "'; DROP TABLE accepted; --", "a\u200cb"])
def test_other_names_are_kept_as_they_are(begin, tmp_path, name):
    service = begin()
    assert service.accept([row(name, 1), row(name, 2)])[1].is_new
    assert service.find_series(name) == name
    service.close()
    assert name in Forecaster.load(tmp_path / "model").fitted.following.series


def test_numbers_are_names_as_those_of_the_model_are(begin, tmp_path):
    service = begin()
    first, again = service.accept([row(7, 1), row("7", 2)])
    assert (first.answer["unique_id"], again.answer["unique_id"]) == ("7", "7")
    whole = walks(40).assign(unique_id=3)
    make().fit(whole, progress=False).save(tmp_path / "whole")
    service = begin("whole")
    found = service.accept([row("12", 1), row(12, 2), row("x", 1), row("-1", 1), row(3, 40)])
    assert [one.answer["unique_id"] for one in (found[0], found[1], found[4])] == [12, 12, 3]
    assert [one.kind for one in found[2:4]] == ["unknown series"] * 2


def test_tuples_are_names_where_the_model_has_them(begin, tmp_path):
    table = pd.concat([series(0, walks(40)["y"]).assign(unique_id=[("shop", one)] * 40) for one in (1, 2)])
    make().fit(table, progress=False).save(tmp_path / "tuples")
    service = begin("tuples")
    found = service.accept([row(["shop", 3], 1), row(["shop", 3], 2), row(["shop"], 1), row("shop", 1), row([1, 1], 2)])
    assert [one.is_new for one in found[:2]] == [True, True]
    assert [one.kind for one in found[2:4]] == ["unknown series"] * 2
    assert found[4].answer["unique_id"] == ("1", 1)
    service.close()
    assert ("shop", 3) in Forecaster.load(tmp_path / "tuples").fitted.following.series


def test_rows_without_a_name_stay_those_of_the_only_series_of_the_fit(begin, tmp_path):
    make().fit(walks(40).drop(columns="unique_id"), progress=False).save(tmp_path / "alone")
    service = begin("alone")
    found = service.accept([{"ds": 40, "y": 0.1}, row("z", 1), {"ds": 41, "y": 0.2}])
    assert [one.answer["unique_id"] for one in found] == ["series", "z", "series"]


def test_other_scalings_say_what_they_need(begin, tmp_path):
    make(scaling="standard").fit(walks(40, 40), progress=False).save(tmp_path / "standard")
    service = begin("standard")
    found = service.accept([row("z", 1), row("z", 2), row("z", 3), row("a", 40)])
    assert [one.kind for one in found[:3]] == ["unknown series"] * 3
    assert "needs 3 rows at once" in str(found[0])
    assert found[3].is_new


def test_times_are_read_as_those_of_the_fit(begin, tmp_path):
    hours = pd.date_range("2024-03-30", periods=40, freq="h", tz="Europe/Berlin")
    make(freq="h").fit(walks(40).assign(ds=hours), progress=False).save(tmp_path / "zoned")
    service = begin("zoned")
    first = "2024-03-31T00:30:00Z"  # half past one in Berlin, half an hour before clocks go ahead
    found = service.accept(
        [
            row("z", first),
            row("z", "2024-03-31T03:30:00+02:00"),
            row("y", "2024-03-31 01:00"),
            row("x", "9999-12-31T23:00Z"),
            row("a", "9999-12-31T23:00Z"),
        ]
    )
    assert [one.is_new for one in found[:2]] == [True, True]
    assert found[1].answer["ds"] == "2024-03-31T03:30:00+02:00"
    assert [one.column for one in found[2:]] == ["ds", "ds", "ds"]
    assert str(service.last_times()["z"].tz) == "Europe/Berlin"


def test_a_model_that_follows_nobody_can_begin(begin, saved, tmp_path):
    forecaster = Forecaster.load(saved)
    forecaster.fitted.following, forecaster.fitted.trained_until = Following(Fleet(), {}), {}
    forecaster.save(tmp_path / "empty")
    service = begin("empty")
    found = service.accept([row("z", 1), row(7, 1), row("z", 2)])
    assert [one.is_new for one in found] == [True, True, True]
    service.close()
    assert set(Forecaster.load(tmp_path / "empty").fitted.following.series) == {"z", "7"}


def test_an_engine_begins_a_series_too(begin, saved):
    service, stepper = begin(), Stepper(saved, n_paths=5)
    given = [row("z", 7 + place, value) for place, value in enumerate(VALUES)]
    expected = [one.answer for one in service.accept(given)]
    state, answers = stepper.step(None, given[:3])
    state, more = stepper.step(state, given[3:])
    assert answers + more == expected
    assert stepper.step(None, [row("a", 40)]) == stepper.step(stepper.begin("a"), [row("a", 40)])
    nothing, (refused, broken) = stepper.step(None, [row("z", 1, None), 7])
    assert nothing is None
    assert (refused["error"]["column"], broken["error"]["kind"]) == ("y", "invalid")
    state, answers = stepper.step(None, [row("z", 1, None), row("a", 40), row("z", 2), row("y", 1)])
    assert [one.get("error", {}).get("kind") for one in answers] == [
        "invalid",
        "unknown series",
        None,
        "unknown series",
    ]
    assert stepper.step(state, [row("z", 2)])[1] == answers[2:3]
    assert stepper.step(None, []) == (None, [])
