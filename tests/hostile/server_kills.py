"""kill -9 of `smct serve` at random moments: 0 answered rows lost, 0 taken twice, states those of an undisturbed run.

    python tests/hostile/server_kills.py --kills 100

A client sends rows of three series and of ones that begin, up to three requests in flight, some rows wrong, some sent
again. The server is a fork of this process, so that a kill costs a moment and not an import of torch; a second fork
kills it after a random time, at its start, between requests or in the middle of them. It is started again, and the
client sends again what was not answered. In the end answers and states are compared, bit by bit, with those of a
service that was never killed. Prints a JSON object with the counts and what went wrong.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

KNOWN = ("a", "b", "c")
"""The series of the model."""
FIRST = 40
"""Time of the first row of each series."""
OPTIONS = ("--paths", "2", "--save-every", "7")
REQUESTS = 10
"""About how many a server answers before it is killed, at most."""
DOWN = (ConnectionError, http.client.HTTPException, TimeoutError)


def begin_server(folder, port, *options):
    """A server in a fork: its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        from smc_transformer.cli import main

        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            code = main([str(one) for one in ("serve", folder, "--port", port, *OPTIONS, *options)])
    finally:
        os._exit(code)


def begin_killer(victim, seconds):
    """A fork that kills a process after a while: its process id."""
    child = os.fork()
    if child == 0:
        time.sleep(seconds)
        os.kill(victim, signal.SIGKILL)
        os._exit(0)
    return child


class Client:
    """Sends rows, and remembers what was answered."""

    def __init__(self, port, seed):
        self.port, self.chance = port, random.Random(seed)
        self.next_time = dict.fromkeys(("a", "b", "c"), FIRST)
        self.answered, self.waiting, self.rows = {}, [], []  # by series and time; requests without an answer; all good
        self.bad = []
        self.n_repeated = self.n_sent_again = 0

    def more(self, name):
        """A request with the next rows of a series, and some that are wrong or were sent before."""
        request = []
        for _ in range(self.chance.choice([1, 1, 2, 5, 12])):
            if self.chance.random() < 0.1:
                request.append({"unique_id": name, "ds": self.next_time[name], "y": "wrong"})
            elif self.chance.random() < 0.1 and self.next_time[name] > FIRST:
                early = max(FIRST, self.next_time[name] - 20)
                again = self.chance.randrange(early, self.next_time[name])
                request += [row for row in self.rows if (row["unique_id"], row["ds"]) == (name, again)]
            may_miss = name in KNOWN or self.next_time[name] > FIRST  # a series begins with a value
            value = None if may_miss and self.chance.random() < 0.05 else round(self.chance.gauss(0, 1), 3)
            row = {"unique_id": name, "ds": self.next_time[name], "y": value}
            self.next_time[name] += 1
            self.rows.append(row)
            request.append(row)
        return request

    def send(self):
        """Send up to three requests at once; those that the server did not answer are sent again the next time."""
        self.n_sent_again += len(self.waiting)
        if not self.waiting:
            if self.chance.random() < 0.1 or len(self.next_time) == len(KNOWN):
                self.next_time[f"new {len(self.next_time)}"] = FIRST
            names = self.chance.sample(sorted(self.next_time), self.chance.choice([1, 2, 3]))
            self.waiting = [self.more(name) for name in names]
        going = []
        try:
            for request in self.waiting:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                connection.request("POST", "/rows", json.dumps(request), {"content-type": "application/json"})
                going.append((request, connection))
        except DOWN:
            pass
        for request, connection in going:
            with contextlib.suppress(*DOWN), contextlib.closing(connection):
                response = connection.getresponse()
                self._note(request, response.status, response.read())
                self.waiting.remove(request)

    def _note(self, request, status, body):
        document = json.loads(body)
        if status not in (200, 422):
            self.bad.append(f"{status}: {body[:300]!r}")
            return
        self.n_repeated += document["repeated"]
        for row, answer in zip(request, document["answers"], strict=True):
            if ("error" in answer) != (row["y"] == "wrong"):
                self.bad.append(f"{row}: {answer}")
            elif "error" not in answer:
                before = self.answered.setdefault((row["unique_id"], row["ds"]), answer)
                if before != answer:
                    self.bad.append(f"{row} has two answers")


def is_up(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.suppress(*DOWN), contextlib.closing(connection):
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


def has_ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait_until_up(child, port, seconds=120):
    """Whether the server answers; False: it has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_up(port):
            return True
        if has_ended(child):
            return False
        time.sleep(0.005)
    raise AssertionError("the server does not answer")


def states(folder):
    from smc_transformer.forecaster import Forecaster
    from smc_transformer.forecaster.folder.packed import pack_series

    fitted = Forecaster.load(folder).fitted
    return {name: pack_series(fitted, "", name) for name in sorted(fitted.following.series)}


def run(saved, place, n_kills, seed, *options):
    """Kill a server on a copy of a model so often; what was found."""
    from helpers.served import free_port  # imports all that a server needs, so that forks need not

    from smc_transformer.forecaster.live import Service

    folder, quiet = shutil.copytree(saved, place / "killed"), shutil.copytree(saved, place / "quiet")
    client, chance = Client(free_port(), seed), random.Random(f"moments {seed}")
    warm = Service(shutil.copytree(saved, place / "warm"), n_paths=2)  # kernels are loaded: forks need not
    warm.accept([{"unique_id": "a", "ds": FIRST, "y": 0.5}, {"unique_id": "a", "ds": FIRST + 1, "y": 0.5}])
    warm.save()
    warm.close()
    moments = {"starting": 0, "first requests": 0, "later requests": 0}  # in the middle of which it was killed
    starting, sending = 1.0, 1.0  # seconds, about
    while sum(moments.values()) < n_kills and len(client.bad) < 20:
        begun = time.monotonic()
        server = begin_server(folder, client.port, *options)
        is_early = chance.random() < 0.25
        killer = begin_killer(server, chance.random() * starting) if is_early else None
        n_before, moment = len(client.answered), "starting"
        if wait_until_up(server, client.port):
            moment = "first requests"
            starting = (starting + time.monotonic() - begun) / 2
            killer = killer or begin_killer(server, chance.random() * REQUESTS * sending)
            while not has_ended(server):
                begun, n_answered = time.monotonic(), len(client.answered)
                client.send()
                if len(client.answered) > n_answered:
                    sending = (sending + time.monotonic() - begun) / 2
        if killer is not None:
            os.waitpid(killer, 0)
        _, status = os.waitpid(server, 0)  # not before: its number would be free for another process
        if not os.WIFSIGNALED(status):
            client.bad.append(f"the server has ended by itself: {status}")
        moments["later requests" if len(client.answered) > n_before else moment] += 1
    server = begin_server(folder, client.port, *options)
    wait_until_up(server, client.port)
    while True:
        client.send()
        if not client.waiting and set(client.answered) == {(row["unique_id"], row["ds"]) for row in client.rows}:
            break
    os.kill(server, signal.SIGTERM)
    _, status = os.waitpid(server, 0)
    if status != 0:
        client.bad.append(f"the last server ended with {status}")
    service = Service(quiet, n_paths=2)
    for row in client.rows:
        (found,) = service.accept([row])
        if found.answer != client.answered[row["unique_id"], row["ds"]]:
            client.bad.append(f"another answer than undisturbed: {row}")
    service.save()
    taken = service.n_taken
    service.close()
    again = Service(folder, n_paths=2)
    if again.n_taken != taken:
        client.bad.append(f"{taken} rows were sent that are fine, {again.n_taken} were taken")
    again.close()
    if states(folder) != states(quiet):
        client.bad.append("the states are not those of an undisturbed run")
    return {
        "kills": moments,
        "rows": len(client.rows),
        "series": len({row["unique_id"] for row in client.rows}),
        "requests sent again": client.n_sent_again,
        "rows answered as before": client.n_repeated,
        "bad": client.bad,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--retire-after", help="as of smct serve")
    options = parser.parse_args()
    import torch
    from helpers.forecaster_tables import make, walks

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        saved = Path(name) / "model"
        make().fit(walks(40, 40, 40), progress=False).save(saved)
        more = ("--retire-after", options.retire_after) if options.retire_after else ()
        found = run(saved, Path(name), options.kills, options.seed, *more)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 1 if found["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
