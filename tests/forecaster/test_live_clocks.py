"""Times of rows in service: clocks that go back, time zones, daylight saving."""

import shutil

import pandas as pd
import pytest
from helpers.forecaster_tables import make, walks

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.answering import Taken
from smc_transformer.forecaster.folder.packed import pack_series
from smc_transformer.forecaster.live import Service

# 48 hours up to Saturday 23:00 in Paris; at 3:00 in the night that follows, clocks go back to 2:00.
AUTUMN = pd.date_range("2024-10-25", periods=48, freq="h", tz="Europe/Paris")
SPRING = pd.date_range("2024-03-29", periods=48, freq="h", tz="Europe/Paris")


def fitted(folder, times, freq="h"):
    table = walks(len(times)).assign(ds=times)
    make(freq=freq, calendar=["hour"] if freq == "h" else []).fit(table, progress=False).save(folder)
    return folder


@pytest.fixture(scope="module")
def autumn(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("autumn") / "model", AUTUMN)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("plain") / "model", AUTUMN.tz_localize(None))


def serving(folder, tmp_path, name="copy"):
    return Service(shutil.copytree(folder, tmp_path / name), n_paths=5)


def row(time, value=0.5):
    return {"unique_id": "a", "ds": time, "y": value}


def outcome(service, *rows):
    """Of each row the time that was answered, or the kind of the refusal."""
    found = service.accept(list(rows))
    return [one.answer["ds"] if isinstance(one, Taken) else one.kind for one in found]


NIGHT = ["2024-10-27T00:00:00+02:00", "2024-10-27T01:00:00+02:00", "2024-10-27T02:00:00+02:00"]
NIGHT += ["2024-10-27T02:00:00+01:00", "2024-10-27T03:00:00+01:00"]


def test_the_hour_that_comes_twice_is_two_rows(autumn, tmp_path):
    service = serving(autumn, tmp_path)
    assert outcome(service, *map(row, NIGHT)) == NIGHT
    assert outcome(service, *map(row, NIGHT)) == NIGHT  # as before
    assert service.n_taken == 5
    service.close()
    assert Forecaster.load(tmp_path / "copy").predict(h=1, n_paths=2)["ds"][0] == pd.Timestamp(
        "2024-10-27 04:00", tz="Europe/Paris"
    )


def test_the_hour_that_does_not_come_is_no_gap(tmp_path):
    service = Service(fitted(tmp_path / "model", SPRING), n_paths=5)
    night = ["2024-03-31T00:00:00+01:00", "2024-03-31T01:00:00+01:00", "2024-03-31T03:00:00+02:00"]
    given = [row(time) for time in night]
    assert outcome(service, *given) == night
    assert service.forecaster.fitted.following.fleet.take(["a"]).position.tolist() == [len(SPRING) + 2]
    service.close()


def test_any_zone_and_way_of_writing_is_the_same_moment(autumn, tmp_path):
    """States too are the same to the bit, and a row that is sent again in another zone was accepted before."""
    ways = [
        NIGHT,
        [pd.Timestamp(time).tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ") for time in NIGHT],
        [pd.Timestamp(time).tz_convert("Asia/Kolkata").isoformat() for time in NIGHT],
        [pd.Timestamp(time).tz_convert("America/New_York").isoformat(sep=" ") for time in NIGHT],
    ]
    packed = []
    for number, times in enumerate(ways):
        service = serving(autumn, tmp_path, f"copy {number}")
        assert outcome(service, *map(row, times)) == NIGHT
        for again in ways:
            assert outcome(service, *map(row, again)) == NIGHT
        assert outcome(service, row(ways[1][2], 0.7)) == ["conflict"]
        assert service.n_taken == 5
        packed.append(pack_series(service.forecaster.fitted, "", "a"))
        service.close()
    assert set(packed) == {packed[0]}


def test_a_zone_must_be_told_where_the_fit_has_one_and_only_there(autumn, plain, tmp_path):
    service = serving(autumn, tmp_path)
    (error,) = service.accept([row("2024-10-27T02:00:00")])  # which of the two?
    assert "no time zone" in str(error)
    assert error.column == "ds"
    service.close()
    service = serving(plain, tmp_path, "plain")
    (error,) = service.accept([row("2024-10-27T00:00:00+02:00")])
    assert "time zone" in str(error)
    assert outcome(service, row("2024-10-27T00:00:00"), row("2024-10-27 01:00")) == [
        "2024-10-27T00:00:00",
        "2024-10-27T01:00:00",
    ]
    service.close()


def test_a_clock_that_goes_back_changes_nothing(plain, tmp_path):
    service = serving(plain, tmp_path)
    hours = pd.date_range("2024-10-27", periods=6, freq="h")
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    rows = [row(time.isoformat(), value) for time, value in zip(hours, values, strict=True)]
    first = service.accept(rows)
    before = pack_series(service.forecaster.fitted, "", "a")
    # Set back by three hours, a clock gives times that are taken, with the values that come now.
    assert outcome(service, row(hours[3].isoformat(), 0.7)) == ["conflict"]
    assert outcome(service, row("2024-10-26T00:00:00", 0.7)) == ["past"]  # of the fit
    assert service.accept(rows) == [one._replace(is_new=False) for one in first]
    assert (service.n_taken, pack_series(service.forecaster.fitted, "", "a")) == (6, before)
    assert outcome(service, row("2024-10-27T06:00:00")) == ["2024-10-27T06:00:00"]
    service.close()


def test_a_clock_that_jumps_ahead_is_missing_rows_up_to_a_limit(plain, tmp_path):
    service = Service(shutil.copytree(plain, tmp_path / "copy"), n_paths=5, most_steps=10)
    assert outcome(service, row("2024-10-27T11:00:00"), row("2034-01-01T00:00:00")) == ["invalid", "invalid"]
    assert outcome(service, row("2024-10-27T00:30:00")) == ["invalid"]  # not on the grid
    assert outcome(service, row("2024-10-27T09:00:00")) == ["2024-10-27T09:00:00"]
    assert outcome(service, row("2024-10-27T05:00:00")) == ["past"]
    service.close()


def test_days_of_23_and_25_hours_are_days(tmp_path):
    days = pd.date_range("2024-09-10", periods=46, freq="D", tz="Europe/Paris")  # to the 25th of October
    service = Service(fitted(tmp_path / "model", days, freq="D"), n_paths=5)
    given = pd.date_range("2024-10-26", periods=4, freq="D", tz="Europe/Paris")
    assert outcome(service, *(row(time.isoformat()) for time in given)) == [time.isoformat() for time in given]
    assert outcome(service, row("2024-10-29T23:00:00Z")) == ["2024-10-30T00:00:00+01:00"]
    service.close()
