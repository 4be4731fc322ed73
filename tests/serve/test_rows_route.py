"""POST /rows: what is accepted, what is refused and why, and that nothing is lost or taken twice."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from helpers.served import row, serving

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.folder.store.accepted import Store
from smc_transformer.forecaster.folder.store.databases import StoreError
from smc_transformer.forecaster.live import Service
from smc_transformer.serve.limits import Limits


def test_one_row_a_list_and_lines(client):
    one = client.post("/rows", json=row())
    assert one.status_code == 200
    assert {key: one.json()[key] for key in ("accepted", "repeated", "refused")} == {
        "accepted": 1,
        "repeated": 0,
        "refused": 0,
    }
    (answer,) = one.json()["answers"]
    assert (answer["unique_id"], answer["ds"]) == ("a", 40)
    assert set(answer["surprise"][0]) == {"target", "value", "log_density", "pit", "outside-80", "outside-95"}
    assert answer["forecast"][0]["ds"] == 41
    several = client.post("/rows", json=[row("b"), row("a", 41), row("b", 41), row()])
    assert several.status_code == 200
    assert several.json()["accepted"] == 3
    assert several.json()["answers"][3] == answer  # as before
    lines = "\n".join(json.dumps(one) for one in (row("c"), row("c", 41))) + "\n\n"
    found = client.post("/rows", content=lines, headers={"content-type": "application/x-ndjson; charset=utf-8"})
    assert [one["ds"] for one in found.json()["answers"]] == [40, 41]


def test_answers_are_those_of_update(folder):
    forecaster = Forecaster.load(folder)
    with serving(folder) as client:
        found = client.post("/rows", json=[row("a", 40, 0.3)]).json()["answers"][0]
        expected = forecaster.update(pd.DataFrame([row("a", 40, 0.3)]))
    assert found["surprise"][0]["pit"] == expected["pit"][0]
    assert found["surprise"][0]["log_density"] == expected["log_density"][0]
    # The stop has saved: what was taken is in the folder, and nothing has to be replayed.
    pd.testing.assert_frame_equal(Forecaster.load(folder).predict(), forecaster.predict())


def test_refused_rows_are_named_and_the_others_taken(client):
    given = [row(), row("z\n"), row("b", 40, "1"), {"unique_id": "b", "y": 1.0}, 7, row("b", 39), row("c", 40, 1e300)]
    found = client.post("/rows", json=given)
    assert found.status_code == 422
    assert (found.json()["accepted"], found.json()["refused"]) == (1, 6)
    errors = [answer.get("error") for answer in found.json()["answers"]]
    assert errors[0] is None
    assert [(one["row"], one["kind"], one.get("column")) for one in errors[1:]] == [
        (1, "unknown series", "unique_id"),
        (2, "invalid", "y"),
        (3, "invalid", "ds"),
        (4, "invalid", None),
        (5, "past", "ds"),
        (6, "invalid", "y"),
    ]
    assert "'y' must be a number or null, got \"1\"" in errors[2]["reason"]


def test_a_conflict_is_409_and_names_both_values(client):
    client.post("/rows", json=row())
    found = client.post("/rows", json=row(value=0.7))
    assert found.status_code == 409
    error = found.json()["answers"][0]["error"]
    assert (error["kind"], error["column"]) == ("conflict", "y")
    assert "time 40 is taken: 'y' is 0.5 there, got 0.7" in error["reason"]
    assert client.post("/rows", json=row()).status_code == 200


@pytest.mark.parametrize(
    ("body", "kind", "status", "word"),
    [
        (b"{broken", "application/json", 400, "not JSON"),
        (b'[{"unique_id": "a", "ds": 40, "y": 1.0, "y": 2.0}]', "application/json", 400, "an object has 'y' twice"),
        (b"\xff\xfe", "application/json", 400, "not JSON"),
        (b"[" * 100_000, "application/json", 400, "not JSON"),
        (b"", "application/json", 400, "not JSON"),
        (b"[]", "application/json", 422, "no row"),
        (b"\n\n", "application/x-ndjson", 422, "no row"),
        (b"a,b", "text/csv", 415, "text/csv"),
        (b"1" * 3000, "application/json", 413, "2000 bytes"),
        (json.dumps([row()] * 11).encode(), "application/json", 413, "11 rows"),
    ],
)
def test_bodies_that_cannot_be_read(folder, body, kind, status, word):
    limits = Limits(rows=10, body_bytes=2000 if status == 413 else 2**20)
    with serving(folder, limits=limits) as client:
        found = client.post("/rows", content=body, headers={"content-type": kind})
        assert found.status_code == status
        assert word in found.json()["error"]["reason"]
        chunked = client.post("/rows", content=iter([body[:5], body[5:]]), headers={"content-type": kind})
        assert chunked.status_code == status  # without a length in the head
        assert client.get("/health").json()["rows_taken"] == 0


def test_short_answers_name_the_refused_only(client):
    found = client.post("/rows?short=true", json=[row(), row("a", 0)]).json()
    assert (found["accepted"], found["refused"]) == (1, 1)
    assert [one["error"]["row"] for one in found["answers"]] == [1]


def test_a_full_queue_says_when_to_come_again(folder):
    with serving(folder, limits=Limits(queued_rows=5, retry_after=7)) as client:
        begun, hold = threading.Event(), threading.Event()
        client.worker.ask(lambda service: (begun.set(), hold.wait(60)))
        assert begun.wait(60)
        with ThreadPoolExecutor() as pool:
            first = pool.submit(client.post, "/rows", json=[row("a", time) for time in range(40, 45)])
            while client.worker.n_queued < 5:
                pass
            refused = client.post("/rows", json=row("b"))
            hold.set()
            assert first.result().json()["accepted"] == 5
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "7"
        assert client.post("/rows", json=row("b")).json()["accepted"] == 1


def test_a_request_that_waits_too_long_is_told_and_may_be_sent_again(folder):
    with serving(folder, limits=Limits(seconds=0.05)) as client:
        begun, hold = threading.Event(), threading.Event()
        client.worker.ask(lambda service: (begun.set(), hold.wait(60)))
        assert begun.wait(60)
        late = client.post("/rows", json=row())
        assert late.status_code == 503
        assert "send them again is safe" in late.json()["error"]["reason"]
        hold.set()
    with serving(folder) as client:
        assert client.get("/health").json()["rows_taken"] == 1
        assert client.post("/rows", json=row()).json()["repeated"] == 1


def posted_together(client):
    """The answers to a row of each series, all of which were waiting when the worker came to them."""
    begun, hold = threading.Event(), threading.Event()
    client.worker.ask(lambda service: (begun.set(), hold.wait(60)))
    assert begun.wait(60)  # else the worker might come to the first row before
    with ThreadPoolExecutor() as pool:
        found = [pool.submit(client.post, "/rows", json=row(name)) for name in "abc"]
        until = time.monotonic() + 50
        while client.worker.n_queued < 3 and time.monotonic() < until:
            time.sleep(0.001)
        hold.set()
        return [one.result() for one in found]


def test_requests_that_arrive_together_share_a_batch(folder, monkeypatch):
    batches = []
    append = Store.append

    def counted(self, rounds, **options):
        batches.append(sum(map(len, rounds)))
        append(self, rounds, **options)

    monkeypatch.setattr(Store, "append", counted)
    with serving(folder) as client:
        assert [one.json()["answers"][0]["unique_id"] for one in posted_together(client)] == ["a", "b", "c"]
    assert batches == [3]


def test_what_cannot_be_written_down_is_not_taken(folder, monkeypatch):
    def full(*arguments, **options):
        raise StoreError("the disk is full: /secret/place")

    with serving(folder) as client:
        before = client.get("/forecasts", params={"series": "a"}).json()
        monkeypatch.setattr(Store, "append", full)
        found = client.post("/rows", json=row())
        assert found.status_code == 503
        assert found.headers["retry-after"]
        assert "secret" not in found.text
        monkeypatch.undo()
        assert client.get("/forecasts", params={"series": "a"}).json() == before
        assert client.post("/rows", json=row()).json()["accepted"] == 1


def test_a_row_that_nobody_has_expected_does_not_keep_back_others(folder, monkeypatch):
    accept = Service.accept

    def fails(self, given):
        if any(one["unique_id"] == "b" for one in given):
            raise KeyError("not expected")
        return accept(self, given)

    monkeypatch.setattr(Service, "accept", fails)
    with serving(folder) as client:
        found = posted_together(client)
    assert [one.status_code for one in found] == [200, 500, 200]
    assert "Traceback" not in found[1].text
    loaded = Forecaster.load(folder).fitted.following.series
    assert [loaded[name].last_time for name in "abc"] == [40, 39, 40]


def test_the_stop_answers_what_was_taken_and_refuses_what_comes_later(folder):
    with serving(folder) as client:
        worker = client.worker
        begun, hold = threading.Event(), threading.Event()
        worker.ask(lambda service: (begun.set(), hold.wait(60)))
        begun.wait(60)
        taken = worker.take([row()])
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        while not worker.is_stopping:
            pass
        assert client.post("/rows", json=row("b")).status_code == 503
        hold.set()
        stopping.join(60)
        assert taken.result(timeout=0)[0].is_new
    assert Forecaster.load(folder).fitted.following.series["a"].last_time == 40


def test_states_are_saved_in_turn_and_never_all_at_once(folder, monkeypatch):
    """Series that are due together: each look saves about twice as many as become due between two looks."""
    saved, put = [], Store.put_states

    def counted(self, states, **options):
        saved.append(sorted(states))
        put(self, states, **options)

    monkeypatch.setattr(Store, "put_states", counted)
    monkeypatch.setattr("smc_transformer.serve.worker.LOOK_EVERY", 3)
    with serving(folder, save_every=4, horizon=0) as client:
        for time in range(40, 50):
            assert client.post("/rows", json=[row(name, time) for name in "abc"]).json()["accepted"] == 3
        during = [names for names in saved if names]
    assert {len(names) for names in during} <= {1, 2}
    assert sum(map(len, during)) >= 6  # 30 rows, 4 of each
    assert {name for names in during for name in names} == {"a", "b", "c"}
