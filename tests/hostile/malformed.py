"""Malformed requests to `smct serve`: no traceback, no 5xx, no lost row, and states as if they had never come.

    python tests/hostile/malformed.py --requests 10000

Every request is written to a socket as it is, so that what no client would send is sent too. Now and then comes a good
row. A row that names no series that is there may begin one, and must not touch those that are. Prints a JSON object:
how many requests of each kind there were, with which status they were answered, and what went wrong.
"""

import argparse
import json
import logging
import random
import shutil
import socket
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1]))

PARTIAL = ("truncated", "chunks", "noise", "methods")
"""Kinds that may end before a request does."""
TOKEN = "0123456789abcdef-token"
GOOD_EVERY = 25
SERIES = ("a", "b", "c")
"""Those of the model."""
MAY_BE = {429, 503}
"""Statuses from 500 on (and 429) that are documented: too much at once."""
BODY_BYTES = 20_000
"""The limit of the server: requests beyond it need not be long then."""
ODD = [None, True, [], {}, "", "x", "1", [1], {"a": 1}, 1.5, -1, 10**30, "\x00", "é漢", "\ud800", [[]], "NaN", "2024"]
NUMBERS = ["1e400", "-1e999", "NaN", "Infinity", "-Infinity", "1" * 5000, "1e-400", "0x10", "1_0", "٣", "--1"]
"""As they stand in a body; none is a value that a row may have, but NaN and 1e-400."""
METHODS = ["PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "OPTIONS", "HEAD", "POST", "GET", "get", "G\x00T", ""]
KINDS = ["application/json", "application/x-ndjson", "text/csv", "application/xml", "", "application/json;charset=x"]
PATHS = ["/rows", "/forecasts", "/paths", "/surprises", "/alerts", "/series", "/history", "/summary", "/health", "/"]
PATHS += ["/metrics", "/docs", "/openapi.json", "/page.js", "/nowhere", "//", "/rows/", "/../etc/passwd", "/%00"]
PARAMETERS = ["series", "h", "level", "quantile", "n_paths", "seed", "format", "future", "most", "skip", "seconds"]
VALUES = ["", "a", "zz", "-1", "0", "1e9", "nan", "inf", "1" * 400, "%00", "%ff%fe", "[]", "{", "true", "csv", "é"]
PARTS = [[], [1], [{}], [{"ds": "x"}], [{"ds": [1]}], {}, "x", [{"unique_id": "a", "ds": 40}]]


class Malformed:
    """A generator of requests, the same for the same seed."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.kinds = {
            name.removeprefix("_make_"): getattr(self, name) for name in dir(self) if name.startswith("_make_")
        }

    def one(self):
        """The kind of a request, and its bytes; the connection is closed after these."""
        name = self.chance.choice(sorted(self.kinds))
        return name, self.kinds[name]()

    def _row(self, **more):
        # The next row of a series that is followed: what is wrong with it must be noticed.
        return {"unique_id": "a", "ds": 40, "y": 0.5, **more}

    def _post(self, body, kind="application/json", path="/rows", length=None, token=TOKEN, more=b""):
        body = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body) if length is None else length}"]
        lines += [f"Content-Type: {kind}"] if kind is not None else []
        lines += [f"Authorization: Bearer {token}"] if token is not None else []
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n" + more + b"Connection: close\r\n\r\n" + body

    def _get(self, target, method="GET", version="HTTP/1.1", more=""):
        head = f"{method} {target} {version}\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n{more}"
        return f"{head}Connection: close\r\n\r\n".encode()

    def _make_broken_json(self):
        # Of a series that nobody knows: a change that makes another row of it does not touch those that are there.
        body = bytearray(json.dumps(self._row(unique_id="not a series here")).encode())
        for _ in range(self.chance.randrange(1, 8)):
            how, place = self.chance.randrange(3), self.chance.randrange(len(body))
            if how == 0:
                body[place] = self.chance.randrange(256)
            elif how == 1:
                del body[place]
            else:
                signs = self.chance.choices(b'{}[]",:0123456789eE+-.\\ntu', k=self.chance.randrange(1, 9))
                body[place:place] = bytes(signs)
        return self._post(bytes(body), self.chance.choice(KINDS[:2]))

    def _make_wrong_types(self):
        column, value = self.chance.choice(["unique_id", "ds", "y"]), self.chance.choice(ODD)
        if column == "y" and value in (None, 1.5, -1, 10**30):  # a missing value, or a fine one
            value = "0.5"
        rows = [self._row(**{column: value})] * self.chance.choice([1, 1, 3])
        if column == "unique_id":
            rows = [{**one, "ds": 10} for one in rows]
        return self._post(json.dumps(self.chance.choice([rows, rows[0], value, [value], {}, [rows]])))

    def _make_huge_numbers(self):
        text, column = self.chance.choice(NUMBERS), self.chance.choice(["ds", "y"])
        if column == "y" and text in ("NaN", "1e-400"):
            column = "ds"
        body = json.dumps(self._row(**{column: "@"})).replace('"@"', text)
        return self._post(body, self.chance.choice(KINDS[:2]))

    def _make_encodings(self):
        text = json.dumps(self._row(unique_id="é漢"), ensure_ascii=False)
        code = self.chance.choice(["utf-16", "utf-32", "latin-1", "utf-8-sig", "utf-7", "cp037"])
        tail = self.chance.choice([b"", b"\xff", b"\x00", b"\xed\xa0\x80", b"\xc3"])
        return self._post(text.encode(code, "replace") + tail, self.chance.choice(KINDS))

    def _make_content_types(self):
        kinds = [None, *KINDS[2:5], "a/b;" * 1000, "\x01", "multipart/form-data", "application/json, x"]
        return self._post(json.dumps(self._row(unique_id="not a series here")), self.chance.choice(kinds))

    def _make_oversize(self):
        bodies = ["[" * 10_000, '{"a":' * 3_000, " " * 2 * BODY_BYTES, json.dumps([self._row()] * 1000)]
        return self._post(self.chance.choice([*bodies, "[1" + ",1" * 9_000 + "]"]))

    def _make_truncated(self):
        whole = self._post(json.dumps(self._row()), length=self.chance.choice([None, 10**6, 10**30, "x", "-5", "5, 6"]))
        return whole[: self.chance.randrange(1, len(whole) - 1)]

    def _make_chunks(self):
        size = self.chance.choice([b"5", b"-1", b"zz", b"fffffffffffffffff", b"5;x=" + b"y" * 5000, b""])
        head = self._post("", more=b"Transfer-Encoding: chunked\r\n")
        head = head.replace(b"Content-Length: 0\r\n", self.chance.choice([b"", b"Content-Length: 0\r\n"]))
        return head + size + b"\r\n{brok\r\n0\r\n\r\n"

    def _make_tokens(self):
        token = self.chance.choice([None, "", "x", TOKEN[:-1], TOKEN + "x", "é", "\x00", TOKEN.upper(), "y" * 10_000])
        return self._post(json.dumps(self._row()), token=token)

    def _make_queries(self):
        keys = self.chance.choices(PARAMETERS, k=self.chance.randrange(1, 6))
        query = "&".join(f"{key}={self.chance.choice(VALUES)}" for key in keys)
        path = self.chance.choice(PATHS)
        return self._get(f"{path}?{query}")

    def _make_futures(self):
        future = self.chance.choice([*map(json.dumps, PARTS), "[" * 2000, '[{"ds": 1e999}]', "\x00", "{"])
        return self._get(f"/forecasts?series=a&future={quote(future)}")

    def _make_methods(self):
        method, path = self.chance.choice(METHODS), self.chance.choice(PATHS)
        if method in ("POST", "GET"):
            path = "/" + "x" * self.chance.choice([1, 100, 70_000])
        version = self.chance.choice(["HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "", "HTTP"])
        odd = ["", "no colon\r\n", "A: " + "b" * 70_000 + "\r\n", ": x\r\n", "Host: y\r\n", "A: \x00\r\n"]
        return self._get(path, method, version, self.chance.choice(odd))

    def _make_noise(self):
        return bytes(self.chance.randrange(256) for _ in range(self.chance.randrange(1, 300))) + b"\r\n\r\n"


def answer(port, given, *, is_whole, is_gone):
    """The status (None: there was no answer) and the text of an answer.

    What `is_whole` must be answered; for more of the others the server may wait, but we leave. Who `is_gone` leaves at
    once.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        found = b""
        try:
            connection.sendall(given)
            if is_gone:
                connection.shutdown(socket.SHUT_WR)
            connection.settimeout(60 if is_whole else 0.05)
            while part := connection.recv(2**16):
                found += part
        except (BrokenPipeError, ConnectionResetError):  # it has heard enough
            pass
        except TimeoutError:
            if is_whole:
                raise
    head = found.split(b"\r\n", 1)[0].split(b" ")
    return (int(head[1]) if len(head) > 1 and head[1].isdigit() else None), found


@contextmanager
def logged():
    """What is logged as an error meanwhile."""
    records = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: records.append(logging.Formatter().format(record))
    names = ("", "uvicorn", "uvicorn.error", "asyncio")
    loggers = [logging.getLogger(name) for name in names]
    for one in loggers:
        one.addHandler(handler)
    try:
        yield records
    finally:
        for one in loggers:
            one.removeHandler(handler)


def states(folder):
    """The states of all series, to the bit."""
    from smc_transformer.forecaster import Forecaster
    from smc_transformer.forecaster.folder.packed import pack_series

    fitted = Forecaster.load(folder).fitted
    return {name: pack_series(fitted, "", name) for name in sorted(fitted.following.series)}


def run(saved, folder, n_requests, seed):
    """Send requests to a server on a copy of a model in a folder: what was sent, answered, and went wrong."""
    from helpers.served import serving

    from smc_transformer.forecaster.live import Service
    from smc_transformer.serve.limits import Limits

    disturbed, quiet = shutil.copytree(saved, folder / "disturbed"), shutil.copytree(saved, folder / "quiet")
    requests, sent, statuses, bad, good = Malformed(seed), Counter(), Counter(), [], []
    options = {"tokens": [TOKEN], "limits": Limits(body_bytes=BODY_BYTES), "horizon": 0}
    with serving(disturbed, **options) as client, logged() as errors:  # in this order: a server sets up its own log
        client.headers["authorization"] = f"Bearer {TOKEN}"
        for number in range(n_requests):
            if number % GOOD_EVERY == GOOD_EVERY - 1:
                row = {"unique_id": "b", "ds": 40 + len(good), "y": round(random.Random(number).gauss(10, 2), 3)}
                found = client.post("/rows", json=row)
                if found.status_code != 200 or found.json()["accepted"] != 1:
                    bad.append(f"a good row was refused after request {number}: {found.text[:300]}")
                good.append(row)
                continue
            kind, given = requests.one()
            sent[kind] += 1
            try:
                is_gone = requests.chance.random() < 0.1
                status, text = answer(client.base_url.port, given, is_whole=kind not in PARTIAL, is_gone=is_gone)
            except OSError as error:
                bad.append(f"{kind}: {type(error).__name__}: {error}: {given[:300]!r}")
                continue
            statuses[status] += 1
            if status is None and kind not in PARTIAL and not is_gone:
                bad.append(f"{kind}: no answer: {given[:300]!r}")
            if (status or 0) >= 500 and status not in MAY_BE:
                bad.append(f"{kind}: {status}: {given[:300]!r}: {text[-300:]!r}")
            if b"Traceback" in text or b"site-packages" in text:
                bad.append(f"{kind}: a traceback: {given[:300]!r}: {text[-300:]!r}")
        service = client.worker.service
        begun = [name for name in service.last_times() if name not in SERIES]
        taken = service.n_taken - sum(len(service.accepted.last(name, n_requests)) for name in begun)
        health = client.get("/health").json()
    bad += [f"logged: {one[-600:]}" for one in errors]
    if (taken, health["status"]) != (len(good), "ok"):
        bad.append(f"{len(good)} rows were sent that are fine, {taken} were taken; {health}")
    service = Service(quiet, n_paths=5, horizon=0)
    for row in good:
        service.accept([row])
    service.close()
    found = states(disturbed)
    if {name: found[name] for name in SERIES} != states(quiet):
        bad.append("the states are not those of a server that got the good rows only")
    return {
        "requests": sum(sent.values()),
        "good": len(good),
        "begun": len(begun),
        "kinds": dict(sorted(sent.items())),
        "statuses": {str(status): count for status, count in sorted(statuses.items(), key=str)},
        "bad": bad,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import torch
    from helpers.forecaster_tables import make, walks

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        saved = Path(name) / "model"
        make().fit(walks(40, 40, 40), progress=False).save(saved)
        found = run(saved, Path(name), options.requests, options.seed)
    sys.stdout.write(json.dumps({**found, "bad": found["bad"][:50], "n_bad": len(found["bad"])}, indent=1) + "\n")
    return 1 if found["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
