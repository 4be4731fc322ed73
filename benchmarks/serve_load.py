"""Load on `smct serve`: a real server in a process of its own, a real client on loopback, durable answers.

    python -m benchmarks.serve_load --series 10000 --seconds 60

prints rows a second, the median and the 99th percentile of the time to an answer, and for each tenth of the time the
rows a second and the memory of the server. The client keeps a number of requests in flight, each with rows of different
series. On a machine that others use, the processor time of the server says more than the clock.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import pandas as pd

from smc_transformer import Forecaster

LENGTH = 30
"""Rows of each series before the load."""


def fitted(folder, n_series, n_particles, length=LENGTH):
    """A forecaster of some series that follows many: how good it is does not matter here."""
    random = np.random.default_rng(0)
    waves = np.sin(np.arange(length) / 4) + 0.2 * random.normal(size=(n_series, length))
    table = pd.DataFrame(
        {
            "unique_id": np.repeat([f"s{n:06d}" for n in range(n_series)], length),
            "ds": np.tile(np.arange(length), n_series),
        }
    ).assign(y=waves.ravel())
    first = min(50, n_series)
    training = {"likelihood_steps": 5, "forecast_steps": 2, "validations": 1}
    made = Forecaster(12, 6, freq=1, n_particles=n_particles, training=training)
    made.fit(table.head(first * length), progress=False)
    made.follow(table).save(folder)


def memory(process):
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def processor_seconds(process):
    """Of all threads of a process, in user and system mode."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(url, process, options, begin):
    """Send rows for a while; the times to the answers, rows taken, and the memory meanwhile."""
    random = np.random.default_rng(1)
    next_time = np.full(options.series, begin)
    free = list(random.permutation(options.series))  # no series is in two requests at once
    took, tenths, counts = [], [], {"rows": 0, "busy": 0, "other": 0}
    end = time.perf_counter() + options.seconds

    async def client(http):
        while time.perf_counter() < end:
            chosen = [free.pop() for _ in range(options.rows)]
            rows = [
                {"unique_id": f"s{n:06d}", "ds": int(next_time[n]), "y": round(float(random.normal()), 3)}
                for n in chosen
            ]
            body, begun = json.dumps(rows), time.perf_counter()
            found = await http.post("/rows?short=true", content=body, headers={"content-type": "application/json"})
            if found.status_code == 200:
                took.append(time.perf_counter() - begun)
                counts["rows"] += found.json()["accepted"]
                next_time[chosen] += 1
            else:
                counts["busy" if found.status_code == 429 else "other"] += 1
                await asyncio.sleep(float(found.headers.get("retry-after", 0)))
            for one in chosen:
                free.insert(int(random.integers(len(free) + 1)), one)

    async def watch():
        for tenth in range(10):
            before, since = counts["rows"], time.perf_counter()
            await asyncio.sleep(max(0, end - (9 - tenth) * options.seconds / 10 - since))
            rate = (counts["rows"] - before) / (time.perf_counter() - since)
            tenths.append((rate, memory(process)))
            print(
                f"{tenth + 1}: {rate:.0f} rows/s, {memory(process):.0f} MiB, load {os.getloadavg()[0]:.1f}", flush=True
            )

    limits = httpx.Limits(max_connections=options.clients)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        begun, before = time.perf_counter(), processor_seconds(process)
        await asyncio.gather(watch(), *(client(http) for _ in range(options.clients)))
        seconds = time.perf_counter() - begun
        return np.array(took), tenths, counts, seconds, processor_seconds(process) - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8, help="requests in flight")
    parser.add_argument("--rows", type=int, default=100, help="of each request")
    parser.add_argument("--particles", type=int, default=64)
    parser.add_argument("--horizon", default="0", help="steps ahead in the stored answers; 0: none")
    parser.add_argument("--model", type=Path, help="made there if it is not there yet; the server gets a copy")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        model, folder = options.model or Path(temporary) / "model", Path(temporary) / "served"
        begin = LENGTH
        begun = time.perf_counter()
        if not model.exists():
            fitted(model, options.series, options.particles)
            print(f"fitted, {options.series} series followed: {time.perf_counter() - begun:.0f} s", flush=True)
        shutil.copytree(model, folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "smc_transformer.cli", "serve", folder, "--port", port]
        command += ["--horizon", options.horizon] if options.horizon != "0" else ["--no-forecasts"]
        process = subprocess.Popen([*map(str, command)], env=os.environ)
        url, begun = f"http://127.0.0.1:{port}", time.perf_counter()
        while True:
            try:
                httpx.get(url + "/health").raise_for_status()
                break
            except httpx.TransportError:
                assert process.poll() is None
                time.sleep(0.2)
        print(f"started: {time.perf_counter() - begun:.1f} s, {memory(process):.0f} MiB")
        took, tenths, counts, seconds, worked = asyncio.run(load(url, process, options, begin))
        print(f"{counts['rows'] / seconds:.0f} rows a second over {seconds:.0f} s ({counts})")
        print(f"{counts['rows'] / worked:.0f} rows for each second of the server's processor time ({worked:.0f} s)")
        print(f"time to an answer of {options.rows} rows, {options.clients} in flight:", end=" ")
        print(f"p50 {1e3 * np.quantile(took, 0.5):.0f} ms, p99 {1e3 * np.quantile(took, 0.99):.0f} ms")
        print("rows a second in each tenth of the time:", " ".join(f"{rate:.0f}" for rate, _ in tenths))
        print("resident memory at the end of each, MiB:", " ".join(f"{size:.0f}" for _, size in tenths))
        begun = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        print(f"stopped with code {process.wait()}: {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
