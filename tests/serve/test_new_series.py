"""Series that appear, over HTTP: in answers, forecasts, lists, health and metrics, and after a kill."""

import signal

import pandas as pd
from helpers.served import Process, events, row, serving

from smc_transformer.forecaster import Forecaster


def test_a_new_series_is_everywhere(client, folder):
    expected = Forecaster.load(folder).follow(pd.DataFrame([row("z", 7, 5.0)])).predict(n_paths=20)
    found = client.post("/rows", json=[row("z", 7, 5.0), row("a")])
    assert found.status_code == 200
    first, other = found.json()["answers"]
    assert (first["new_series"], first["surprise"], first["forecast"][0]["ds"]) == (True, [], 8)
    assert "new_series" not in other
    forecast = client.get("/forecasts", params={"series": "z", "n_paths": 20}).json()["rows"]
    assert [one["y"] for one in forecast] == expected["y"].tolist()
    assert client.get("/series", params={"contains": "z"}).json()["series"] == [
        {"series": "z", "last_time": 7, "retired": False}
    ]
    history = client.get("/history", params={"series": "z"}).json()
    assert [(one["time"], one["values"], one["surprise"]) for one in history["rows"]] == [(7, {"y": 5.0}, [])]
    assert history["particles"]["particles"] == 16
    health = client.get("/health").json()
    assert (health["series"], health["series_begun"]) == (4, 1)
    text = client.get("/metrics").text
    assert "smct_series 4.0" in text
    assert "smct_series_begun 1.0" in text
    summary = client.get("/summary").json()
    assert [(one["series"], one["time"]) for one in summary["begun"]] == [("z", 7)]
    assert summary["series"] == 4
    client.post("/rows", json=row("z", 8, 500.0))
    client.get("/history", params={"series": "z"})  # after the batch has been told
    assert [one["series"] for one in client.get("/alerts").json()["surprises"]] == ["z"]


def test_events_tell_of_it(client):
    found = events(client, "seconds=60", 2, lambda: client.post("/rows", json=row("z", 7)))
    assert [one["series"] for one in found[0][1]["begun"]] == []
    assert [one["series"] for one in found[1][1]["begun"]] == ["z"]


def test_beyond_the_limit_is_422_and_says_so(folder):
    with serving(folder, new_series=1) as client:
        found = client.post("/rows", json=[row("y", 1), row("z", 1), row("y", 2)])
        assert found.status_code == 422
        assert found.json()["accepted"] == 2
        error = found.json()["answers"][1]["error"]
        assert (error["row"], error["kind"], error["column"]) == (1, "too many series", "unique_id")
        assert 'smct_rows_refused_total{kind="too many series"} 1.0' in client.get("/metrics").text
        assert client.get("/forecasts", params={"series": "z"}).status_code == 404


def test_it_survives_a_kill(folder):
    given = [row("z", time, 5 + 0.1 * time) for time in range(7, 12)]
    process = Process(folder)
    process.wait()
    with serving_client(process) as client:
        assert client.post("/rows", json=given[:3]).json()["accepted"] == 3
    assert process.end(signal.SIGKILL)[0] == -signal.SIGKILL
    process = Process(folder, "--new-series", "0")  # none may begin any more, this one is there
    process.wait()
    with serving_client(process) as client:
        assert client.get("/health").json()["series"] == 4
        assert client.post("/rows", json=given).json() | {"answers": None} == {
            "accepted": 2,
            "repeated": 3,
            "refused": 0,
            "answers": None,
        }
        error = client.post("/rows", json=row("y")).json()["answers"][0]["error"]
        assert error["reason"] == "unknown series 'y'"
    assert process.end(signal.SIGKILL)[0] == -signal.SIGKILL
    expected = Forecaster.load(folder).follow(pd.DataFrame(given))
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(series="z"), expected.predict())


def serving_client(process):
    import httpx

    return httpx.Client(base_url=process.url, timeout=60)
