"""Forecasts, surprises, alerts, series, history, events, health, metrics, tokens."""

import io
import threading
import time

import pandas as pd
import pytest
from helpers.served import row, serving

from smc_transformer.forecaster import Forecaster
from smc_transformer.serve.access import TokenError, check_binding, read_tokens
from smc_transformer.serve.limits import Limits

TOKEN = "0123456789abcdef-token"


def test_forecasts_are_those_of_predict(folder):
    with serving(folder) as client:
        query = {"series": ["b", "a"], "h": 3, "level": [50, 99.5], "quantile": [0.1], "n_paths": 30}
        found = client.get("/forecasts", params=query)
        as_csv = client.get("/forecasts", params={**query, "format": "csv"})
        asked = client.get("/forecasts", params=query, headers={"accept": "text/csv"})
    expected = Forecaster.load(folder).predict(h=3, level=[50, 99.5], quantiles=[0.1], series=["b", "a"], n_paths=30)
    pd.testing.assert_frame_equal(pd.DataFrame(found.json()["rows"]), expected, check_dtype=False)
    assert as_csv.headers["content-type"].startswith("text/csv")
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(as_csv.text)), expected, check_dtype=False)
    assert asked.text == as_csv.text


def test_paths_are_those_of_simulate(folder):
    with serving(folder) as client:
        found = client.get("/paths", params={"series": "a", "h": 2, "n_paths": 4, "seed": 3}).json()["rows"]
    expected = Forecaster.load(folder).simulate(n_paths=4, h=2, series=["a"], seed=3)
    pd.testing.assert_frame_equal(pd.DataFrame(found), expected, check_dtype=False)


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ("series=z", 404, "unknown series 'z'"),
        ("", 422, "required"),
        ("series=a&series=a", 422, "twice"),
        ("series=a&h=0", 422, "greater"),
        ("series=a&h=5000", 422, "5000 steps"),
        ("series=a&n_paths=20000", 422, "20000 paths"),
        ("series=a&h=1000&n_paths=9000", 422, "numbers"),
        ("series=a&level=200", 422, "level"),
        ("series=a&level=nan", 422, "level"),
        ("series=a&level=inf", 422, "level"),
        ("series=a&quantile=2", 422, "quantile"),
        ("series=a&seed=-1", 422, "greater"),
        ("series=a&format=xml", 422, "json"),
        ("series=a&future=[]", 422, "no future inputs"),
        ("series=a&future={", 422, "future"),
        ('series=a&future=[{"ds":"now"}]', 422, "'now' is not a time"),
        ('series=a&future=[{"ds":1,"ds":2}]', 422, "an object has 'ds' twice"),
    ],
)
def test_forecasts_that_cannot_be(client, query, status, word):
    found = client.get(f"/forecasts?{query}")
    assert found.status_code == status
    assert word in found.json()["error"]["reason"]


def test_surprises_alerts_and_what_is_surprising_now(folder):
    with serving(folder, alert=99) as client:
        client.post("/rows", json=[row("a", 40, 0.1), row("b", 40, 10.0), row("c", 40, 500.0), row("a", 41, None)])
        client.post("/rows", json=row("c", 40, 500.0))  # again: no second alert
        newest = client.get("/surprises").json()["surprises"]
        assert [one["series"] for one in newest] == ["c", "b", "a"]  # nothing was observed in the last row
        assert newest[0]["tail"] == pytest.approx(2 * min(newest[0]["pit"], 1 - newest[0]["pit"]))
        alerts = client.get("/alerts").json()["surprises"]
        assert [(one["series"], one["time"], one["value"]) for one in alerts] == [("c", 40, 500.0)]
        assert client.get("/alerts", params={"series": "a"}).json()["surprises"] == []
        now = client.get("/surprises", params={"seconds": 60}).json()["surprises"]
        assert [one["tail"] for one in now] == sorted(one["tail"] for one in now)
        assert now[0]["series"] == "c"
        assert client.get("/summary").json()["surprising"][0]["series"] == "c"
    with serving(folder, alert=99) as client:  # after a restart they are there again
        assert [one["series"] for one in client.get("/alerts").json()["surprises"]] == ["c"]
        assert client.get("/surprises", params={"seconds": 60}).json()["surprises"] == []


def test_the_history_of_a_series_has_the_forecasts_that_it_had(client):
    first = client.post("/rows", json=[row("a", 40, 0.1), row("b", 40, 1.0)]).json()["answers"][0]
    client.post("/rows", json=row("a", 41, None))
    found = client.get("/history", params={"series": "a"}).json()
    assert [(one["time"], one["values"]) for one in found["rows"]] == [(40, {"y": 0.1}), (41, {"y": None})]
    assert found["rows"][0]["forecast"] == first["forecast"]
    assert found["rows"][0]["surprise"] == first["surprise"]
    health = found["particles"]
    assert health["particles"] == 16
    assert 1 <= health["effective"] <= 16 + 1e-6
    assert 1 <= health["distinct"] <= 16
    assert client.get("/history", params={"series": "z"}).status_code == 404
    assert len(client.get("/history", params={"series": "a", "most": 1}).json()["rows"]) == 1


def test_series_are_found_by_part_of_their_name(client):
    found = client.get("/series", params={"contains": "B"}).json()
    assert found == {"total": 1, "series": [{"series": "b", "last_time": 39, "retired": False}]}
    assert [one["series"] for one in client.get("/series", params={"skip": 1}).json()["series"]] == ["b", "c"]


def test_health_and_metrics(client):
    health = client.get("/health")
    assert health.status_code == 200
    assert health.json()["status"] == "ok"
    assert health.json()["series"] == 3
    client.post("/rows", json=[row(), row("z", "x"), row()])
    text = client.get("/metrics").text
    for line in (
        "smct_rows_accepted_total 1.0",
        "smct_rows_repeated_total 1.0",
        'smct_rows_refused_total{kind="invalid"} 1.0',
        "smct_series 3.0",
        'smct_request_seconds_count{method="POST",route="/rows",status="422"} 1.0',
    ):
        assert line in text
    client.worker.failure = "the disk is full"
    assert client.get("/health").status_code == 503


def test_tokens(folder):
    with serving(folder, tokens=("another-token-0123456789", TOKEN)) as client:
        for path in (
            "/forecasts?series=a",
            "/surprises",
            "/alerts",
            "/series",
            "/history?series=a",
            "/metrics",
            "/summary",
        ):
            assert client.get(path).status_code == 401, path
        for header in (
            "",
            "Bearer",
            "Bearer x",
            f"Basic {TOKEN}",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            "Bearer é",
        ):
            refused = client.post("/rows", json=row(), headers={"authorization": header.encode("latin-1")})
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
        assert client.post("/rows", json=row(), headers={"authorization": f"bearer {TOKEN}"}).status_code == 200
        assert client.get("/health").status_code == 200  # for those who look whether it lives
        assert client.get("/").status_code == 200
        assert client.worker.service.n_taken == 1


def test_outside_this_machine_a_token_is_needed(tmp_path):
    check_binding("127.0.0.1", ())
    check_binding("0.0.0.0", (TOKEN,))
    with pytest.raises(TokenError, match=r"0\.0\.0\.0.*--tokens"):
        check_binding("0.0.0.0", ())
    path = tmp_path / "tokens"
    path.write_text(f"# for the pump room\n\n{TOKEN}\n")
    assert read_tokens(path) == (TOKEN,)
    for text, word in (("# none\n", "no token"), ("short\n", "at least 16"), ("with spaces in the middle\n", "spaces")):
        path.write_text(text)
        with pytest.raises(TokenError, match=word):
            read_tokens(path)


def test_errors_look_the_same_everywhere(client):
    for found in (client.get("/nowhere"), client.delete("/rows"), client.get("/series?most=0"), client.get("/history")):
        assert 400 <= found.status_code < 500
        assert set(found.json()) == {"error"}
        assert {"kind", "reason"} <= set(found.json()["error"])


def test_too_many_forecasts_at_once_are_told_to_come_again(folder):
    with serving(folder, limits=Limits(reads=1)) as client:
        begun, hold = threading.Event(), threading.Event()
        client.worker.ask(lambda service: (begun.set(), hold.wait(60)))
        begun.wait(60)
        waiting = client.worker.ask(lambda service: None)
        assert client.get("/forecasts?series=a").status_code == 429
        hold.set()
        waiting.result(60)
        assert client.get("/forecasts?series=a").status_code == 200


def test_the_description_names_all_routes(client):
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) >= {"/rows", "/forecasts", "/paths", "/surprises", "/alerts", "/history", "/events"}
    assert client.get("/docs").status_code == 200
    assert {"400", "401", "409", "413", "415", "422", "429", "503"} <= set(
        described["paths"]["/rows"]["post"]["responses"]
    )


def test_silent_series_retire_and_come_back(folder):
    with serving(folder, retire_after=0.2) as client:
        expected = client.get("/forecasts", params={"series": "a", "seed": 1}).json()
        end = time.monotonic() + 60
        while (found := client.get("/health").json())["series_retired"] < 3:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert found["series"] == 3
        assert [one["retired"] for one in client.get("/series").json()["series"]] == [True] * 3
        assert b"smct_series_retired 3.0" in client.get("/metrics").content
        assert client.get("/surprises", params={"series": "a"}).status_code == 200
        assert client.get("/forecasts", params={"series": "a", "seed": 1}).json() == expected
        assert client.get("/history", params={"series": "b"}).json()["last_time"] == 39
        assert client.post("/rows", json=[row("c"), row("z ")]).json()["accepted"] == 1
