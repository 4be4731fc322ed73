"""`smct serve` as a process: it lives, streams events, stops gently, and survives kills."""

import contextlib
import signal
import threading

import httpx
import pandas as pd
import pytest
from helpers.command_tables import fails
from helpers.served import Process, events, row

from smc_transformer.forecaster import Forecaster


def test_a_life(folder, tmp_path):
    (tmp_path / "tokens").write_text("0123456789abcdef-token\n")
    server = Process(folder, "--tokens", tmp_path / "tokens", "--alert", "99")
    server.wait()
    header = {"authorization": "Bearer 0123456789abcdef-token"}
    with httpx.Client(base_url=server.url, headers=header, timeout=60) as client:
        assert httpx.get(server.url + "/series").status_code == 401

        def post():
            given = [row("a"), row("b", 40, 900.0), row("b", 41, 10.0)]
            client.post("/rows", json=given).raise_for_status()

        found = events(client, "series=b", 3, post, uncounted=["summary"])  # a slow machine gives many of these first
        kinds = [kind for kind, _ in found]
        assert kinds[0] == "summary"
        rows = [data for kind, data in found if kind == "row"]
        assert [one["unique_id"] for one in rows][:1] == ["b"]
        alerts = [data for kind, data in found if kind == "alert"]
        assert ("b", 900.0) in [(one["series"], one["value"]) for one in alerts]
        # A stop while somebody listens to events and rows arrive.
        listening = threading.Event()
        thread = threading.Thread(target=lambda: _quietly(events, client, "most=1", 10**6, listening.set))
        thread.start()
        assert listening.wait(60)
        code, said = server.end(signal.SIGTERM)
        thread.join(60)
    assert code == 0, said
    assert "Traceback" not in said
    assert "3 rows taken in all" in said
    loaded = Forecaster.load(folder)
    assert loaded.fitted.following.series["b"].last_time == 41


def _quietly(call, *arguments, **options):
    with contextlib.suppress(httpx.TransportError):  # the server has gone away
        call(*arguments, **options)


def test_kills_lose_no_answered_row(folder, tmp_path):
    other = Forecaster.load(folder)
    times = dict.fromkeys("ab", 40)
    for number in range(2):
        server = Process(folder, "--save-every", 3)
        server.wait()
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for _ in range(4):
                given = [row(name, time, 0.1 * number) for name, time in times.items()]
                assert client.post("/rows", json=given).json()["accepted"] == 2
                other.update(pd.DataFrame(given))
                times = {name: time + 1 for name, time in times.items()}
            # In the middle of a request: taken as a whole or not at all.
            late = threading.Thread(target=_quietly, args=(client.post, "/rows"), kwargs={"json": row("c", 40)})
            late.start()
            server.end(signal.SIGKILL)
            late.join(60)
    loaded = Forecaster.load(folder)
    assert [loaded.fitted.following.series[name].last_time for name in "ab"] == [47, 47]


def test_what_cannot_be_served_is_said_in_one_line(capsys, folder, tmp_path):
    assert "--tokens" in fails(capsys, 1, "serve", folder, "--host", "0.0.0.0")
    assert "config.json is missing" in fails(capsys, 1, "serve", tmp_path)
    assert "No such file" in fails(capsys, 1, "serve", folder, "--tokens", tmp_path / "none")


@pytest.mark.parametrize("store", ["mysql://host/db"])
def test_a_store_that_cannot_be_used_is_named(capsys, folder, store):
    assert "got mysql" in fails(capsys, 1, "serve", folder, "--store", store)
