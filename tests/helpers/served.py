"""A server in this process, and one in a process of its own."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import uvicorn

from smc_transformer.forecaster.live import Service
from smc_transformer.serve.app import make_app
from smc_transformer.serve.limits import Limits
from smc_transformer.serve.metrics import Metrics
from smc_transformer.serve.recent import Recent
from smc_transformer.serve.worker import Worker


@contextmanager
def serving(folder, *, tokens=(), limits=None, alert=99.9, save_every=1000, **settings):
    """A client of a server on a folder."""
    limits = limits or Limits()
    service = Service(folder, **{"n_paths": 5, **settings})
    worker = Worker(service, limits, Metrics(), Recent(alert), save_every)
    port = free_port()
    app = make_app(worker, limits, tokens)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server has failed"
        time.sleep(0.01)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            client.worker = worker
            yield client
    finally:
        server.should_exit = True
        thread.join()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Process:
    """`smct serve` in a process of its own."""

    def __init__(self, folder, *options, port=None):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [
            sys.executable,
            "-m",
            "smc_transformer.cli",
            "serve",
            folder,
            "--port",
            self.port,
            "--paths",
            5,
            *options,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
        )

    def wait(self, seconds=120):
        """Until it answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, self.process.communicate()
            try:
                return httpx.get(self.url + "/health").raise_for_status()
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError("the server does not answer")

    def end(self, number):
        """Send a signal, and wait: the exit code and what it has said."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=120)
        return self.process.returncode, said


def events(client, query, n_events, after_first=lambda: None, *, uncounted=()):
    """The first events of a stream, so many beside those of `uncounted` kinds; something is done after the first."""
    found = []
    with client.stream("GET", f"/events?{query}") as stream:
        lines = stream.iter_lines()
        for line in lines:
            if line.startswith("event: "):
                found.append((line[7:], json.loads(next(lines)[6:])))
                if len(found) == 1:
                    after_first()
                if sum(kind not in uncounted for kind, _ in found) == n_events:
                    break
    return found


def row(name="a", time=40, value=0.5, **more):
    return {"unique_id": name, "ds": time, "y": value, **more}
