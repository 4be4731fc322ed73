"""How many series a second, on one core and on an engine; how training shares its work between processes.

    python -m benchmarks.scale rates --out rates.json                    # each verb, one thread, no engine
    python -m benchmarks.scale spark --series 20000 --out spark.json     # predict on local[2], from Parquet to Parquet
                                                                         # (--partitions 100: ten to a tenth; meanwhile
                                                                         # scale_run/tenths.json has those over)
    torchrun --nproc-per-node 2 -m benchmarks.scale training --out training.json

Series are simulated, and the model has its default size; its weights are those of a short training, as speed does not
depend on them. Seconds are of the processor as well as of the clock: on a machine with other work only those compare.
docs/scale.md has the results.
"""

import argparse
import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.local_spark import local_spark
from benchmarks.workers import workers


def simulated(n_series: int, n_rows: int, first: int = 0) -> pd.DataFrame:
    """Daily series with a weekly season; the numbers of a series do not depend on how many there are."""
    times = pd.date_range("2023-01-01", periods=n_rows, freq="D")
    values = np.stack([_values(first + number, n_rows) for number in range(n_series)])
    names = np.repeat([f"series-{first + number:08d}" for number in range(n_series)], n_rows)
    return pd.DataFrame({"unique_id": names, "ds": np.tile(times, n_series), "y": values.ravel()})


def _values(number: int, n_rows: int) -> np.ndarray:
    random = np.random.default_rng(number)
    season = 1 + 0.3 * np.sin(2 * np.pi * (np.arange(n_rows) + random.integers(7)) / 7)
    return np.exp(random.normal(3, 1)) * season * np.exp(0.1 * random.normal(size=n_rows))


def fitted(horizon: int):
    """A forecaster of default size after a moment of training."""
    from smc_transformer import Forecaster

    short = {"likelihood_steps": 4, "forecast_steps": 4, "validations": 1}
    return Forecaster(horizon=horizon, freq="D", training=short).fit(simulated(20, 60), progress=False)


def measure_rates(options):
    """Rows and series a second of the processor, by verb and length of the series."""
    import torch

    from smc_transformer.engines.bucket import Call, ship

    torch.set_num_threads(1)
    forecaster = fitted(options.horizon)
    found = {"bytes of the model": len(ship(forecaster, Call("predict", {})).model), "verbs": []}
    for n_rows, n_series in ((60, options.series), (1095, max(1, options.series // 15))):
        table = simulated(n_series, n_rows, first=1000 * n_rows)  # series of its own: an update goes on from them
        new = table.groupby("unique_id").tail(1)
        before = table.drop(new.index)
        calls = {
            "predict": lambda table=table: forecaster.predict(table, n_paths=options.paths),
            "simulate": lambda table=table: forecaster.simulate(table, n_paths=10),
            "score": lambda table=table: forecaster.score(table),
            "backtest": lambda table=table: forecaster.past_forecasts(table, n_paths=options.paths),
        }
        for verb, call in calls.items():
            found["verbs"].append(_timed(verb, call, n_series, len(table)))
        forecaster.update(before)
        found["verbs"].append(
            {**_timed("update", lambda new=new: forecaster.update(new), n_series, len(new)), "rows known": len(before)}
        )
    return found


def _timed(verb, call, n_series, n_rows):
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    rates = {"series a second": n_series / cpu, "rows a second": n_rows / cpu}
    return {"verb": verb, "series": n_series, "rows": n_rows, "cpu seconds": cpu, "seconds": wall, **rates}


def measure_spark(options):
    """Predict on local[2]: the time at which each partition was written, and the memory of the workers meanwhile."""
    folder = options.folder
    forecaster = fitted(options.horizon)
    (folder / "in").mkdir(parents=True)
    for number in range(10):  # ten files: no table is ever whole
        n_series = options.series // 10
        simulated(n_series, options.rows, first=number * n_series).to_parquet(folder / "in" / f"part-{number}.parquet")
    session = local_spark(partitions=options.partitions, memory="2g")
    table = session.read.parquet(str(folder / "in"))
    done = threading.Event()
    started = time.time()
    watcher = threading.Thread(target=_watch, args=(options, started, done))
    watcher.start()
    try:
        forecaster.predict(table, n_paths=options.paths).write.parquet(str(folder / "out"))
        ended = time.time()
    finally:
        done.set()
        watcher.join()
    written = session.read.parquet(str(folder / "out")).select("unique_id").distinct().count()
    session.stop()
    return {
        "series": options.series,
        "rows of a series": options.rows,
        "series written": written,
        "paths": options.paths,
        "seconds": ended - started,
        **json.loads((folder / "tenths.json").read_text()),
    }


def _watch(options, started, done):
    """Every five seconds: what each Python worker holds and has used; the tenths that are over are on the disk."""
    samples, told, last = [], 0, False
    while not last:
        last = done.wait(5.0)
        samples.append((time.time() - started, workers()))
        ends = _ends(options.folder / "out", started)
        n_tenths = 10 * len(ends) // options.partitions
        if n_tenths > told or last:
            told = n_tenths
            found = {"partitions written after seconds": ends, "tenths": _tenths(samples, ends, options)}
            (options.folder / "tenths.json").write_text(json.dumps(found, indent=1) + "\n")


def _ends(out, started):
    """When each partition was whole, in order: Spark writes it in the folder of an attempt, and moves it then."""
    found = []
    for file in out.rglob("*.parquet"):
        if not any(part.startswith("attempt") for part in file.parts):
            with suppress(FileNotFoundError):  # moved again when all are whole
                found.append(file.stat().st_mtime - started)
    return sorted(found)


def _tenths(samples, ends, options):
    """For each tenth that is over: its time, what workers have used for it, and the most that one held.

    The first tenth begins with the first partition written: the shuffle, and the imports of the workers, go before.
    """
    times, used = [seconds for seconds, _ in samples], _used([seen for _, seen in samples])
    found, start = [], ends[0] if ends else 0.0
    for tenth in range(1, 10 * len(ends) // options.partitions + 1):
        end = ends[max(1, round(tenth * options.partitions / 10)) - 1]
        held = [one.megabytes for seconds, seen in samples if start <= seconds <= end for one in seen.values()]
        cpu = float(np.interp(end, times, used) - np.interp(start, times, used))
        done = sum(start < one <= end for one in ends) * options.series / options.partitions
        rate = done / cpu if cpu > 0 else None
        seconds = {"seconds": end - start, "cpu seconds of workers": cpu, "series a cpu second": rate}
        found.append({"series": done, **seconds, "most MB of a worker": max(held, default=None)})
        start = end
    return found


def _used(samples):
    """Seconds of the processor up to each sample, of all workers that there have been."""
    known, found = {}, []
    for seen in samples:
        known.update({pid: one.cpu_seconds for pid, one in seen.items()})
        found.append(sum(known.values()))
    return found


def measure_training(options):
    """Seconds of the clock and of each process for so many steps of the likelihood and of the forecast score."""
    import torch
    import torch.distributed as dist

    from smc_transformer.forecaster.settings import Settings
    from smc_transformer.learning import ForecastScore, Likelihood, Trainer
    from smc_transformer.support import processes

    torch.set_num_threads(1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    settings = Settings.from_dict({"scaling": "local", "horizon": 12, "input_size": 24, "seasons": (7,), "freq": "D"})
    found = {"processes": processes.size(), "batch": options.batch, "steps": options.steps}
    for name, goal in (("likelihood", Likelihood()), ("forecast", ForecastScore(23, (1.0,)))):
        model = settings.make_model(0)
        x = torch.randn(512, 36, model.config.n_inputs, generator=torch.Generator().manual_seed(0))
        run = {"goal": goal, "batch_size": options.batch, "progress": False, "epochs": 1}
        Trainer(model, steps_per_epoch=2, **run).fit(x)  # a warm start
        cpu, wall = time.process_time(), time.perf_counter()
        Trainer(model, steps_per_epoch=options.steps, **run).fit(x)
        own = (time.process_time() - cpu, time.perf_counter() - wall)
        found[name] = {"cpu seconds of each process": [c for c, _ in processes.gather(own)], "seconds": own[1]}
    return found if processes.rank() == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rates", "spark", "training"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--series", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--paths", type=int, default=100)
    parser.add_argument("--horizon", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path("scale_run"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    found = {"rates": measure_rates, "spark": measure_spark, "training": measure_training}[options.what](options)
    if found is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
