"""Random hostile input, seeded: every outcome is success or an error of ours, the process lives, and nothing is lost.

    python tests/hostile/fuzz.py --cases 200           # so many cases of each kind; `make fuzz` runs for longer
    python tests/hostile/fuzz.py --minutes 10
    python tests/hostile/fuzz.py --only tables --first 1234 --cases 1 --show

The cases run in a process of their own: if it dies or hangs, the case is counted and the next process goes on after it.
A case is a kind and a number; the number is the seed of all that is random in it. Prints a JSON object of counts:

    ok        it worked, and where the input was damaged, what came out is what comes out of the undamaged
    refused   an error of ours
    foreign   an error of Python, pandas, torch in its place
    silent    damaged or refused, and yet something else came out, or the state has changed
    crash     the process died
    hang      no answer after some seconds
"""

import argparse
import contextlib
import io
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

SECONDS = 30
"""Of a case; more is a hang."""
MEMORY = 12 * 2**30
"""Bytes of the process: what asks for more gets an error, and does not stop the machine."""
START = 600
"""Seconds in which the process must have begun: it imports torch and trains a model."""
AT_ONCE = 400
"""Cases of one process."""
BAD = ("foreign", "silent", "crash", "hang")


class Hang(BaseException):
    """Not an Exception: nobody may catch it on the way."""


# --- values that nobody expects -----------------------------------------------------------------------------


NUMBERS = (
    *(0, 1, -1, 2, 7, 10**9, 2**31, 2**63, 2**64, -(2**63), 10**400, True, 3 + 4j),
    *(0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), -float("inf")),
)
TEXTS = (
    *("", " ", "a", "y", "now", "today", "NaT", "nan", "inf", "1e999", "0x10", "2024-01-01", "9999-12-31", "h", "D"),
    *("x" * 100_000, "\0", "\ud800", "é" * 50, "1_000", "-", "--", "../..", "'", '"', "\n", "None", "[1]", "{}"),
)


def odd_number(chance):
    return chance.choice(NUMBERS)


def odd_text(chance):
    return chance.choice(TEXTS)


def odd_value(chance, depth=0):
    kind = chance.randrange(8 if depth < 2 else 5)
    if kind < 2:
        return odd_number(chance)
    if kind < 4:
        return odd_text(chance)
    if kind == 4:
        return chance.choice([None, b"bytes", object(), print, range(3), set(), Path("x")])
    if kind == 5:
        return [odd_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 6:
        return {odd_text(chance): odd_value(chance, depth + 1) for _ in range(chance.randrange(3))}
    return tuple(odd_value(chance, depth + 1) for _ in range(chance.randrange(3)))


def is_ours(error):
    """An error of this package, or one of Python's plain kinds that this package has raised itself."""
    if type(error).__module__.startswith("smc_transformer"):
        return True
    if isinstance(error, MemoryError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    raised_here = bool(frames) and f"{os.sep}smc_transformer{os.sep}" in frames[-1].filename
    return isinstance(error, (ValueError, TypeError)) and raised_here and (frames[-1].line or "").startswith("raise")


# --- the kinds of cases -------------------------------------------------------------------------------------


class Cases:
    """What the cases share: a saved forecaster with a gap in a series, and a stream that was killed."""

    def __init__(self, folder):
        import pandas as pd
        import torch

        from smc_transformer import InferenceSettings, SMCTransformer, SMCTransformerConfig
        from smc_transformer.forecaster import Forecaster
        from smc_transformer.forecaster.live import Service

        torch.set_num_threads(1)
        self.folder, self.saved = folder, folder / "saved"
        if not self.saved.exists():
            config = {"d_model": 8, "d_ff": 8, "window": 6, "n_particles": 5}
            short = {"likelihood_steps": 2, "forecast_steps": 1, "batch_size": 8, "validations": 1}
            made = Forecaster(10, 4, freq="D", config=config, training=short, n_particles=8)
            times = pd.date_range("2024-01-01", periods=40, freq="D")
            table = pd.concat(
                pd.DataFrame({"unique_id": name, "ds": times, "y": [float(t % 7 + shift) for t in range(40)]})
                for name, shift in (("a", 0), ("b", 5))
            )
            table.loc[(table["unique_id"] == "b") & (table["ds"] == times[30]), "y"] = float("nan")
            made.fit(table, progress=False).save(self.saved)
            service = Service(self.saved, n_paths=2)
            service.take(b'{"unique_id": "a", "ds": "2024-02-10", "y": 2.5}', 1)
            service.take(b'{"unique_id": "b", "ds": "2024-02-10", "y": null}', 2)
            service.close()
        self.forecaster = Forecaster.load(self.saved)
        self.expected = self.answer(self.forecaster)
        self.model = SMCTransformer(
            SMCTransformerConfig(n_inputs=2, n_targets=1, d_model=4, d_ff=4, window=3),
            inference=InferenceSettings(n_particles=3),
            generator=0,
        )

    @staticmethod
    def answer(forecaster):
        return forecaster.predict(n_paths=3, h=2, seed=0).to_json(date_format="iso")

    def fresh(self):
        return shutil.copytree(self.saved, Path(tempfile.mkdtemp(dir=self.folder)) / "model")

    def folders(self, chance):
        """A file with flipped bits, cut off, with a page of zeros or of another file: refused, or as it was."""
        from smc_transformer.forecaster import Forecaster

        folder = self.fresh()
        # Readers of the store leave an empty log, and a file in which they count themselves.
        files = sorted(path for path in folder.iterdir() if path.stat().st_size and not path.name.endswith("-shm"))
        path = chance.choice(files)
        data = bytearray(path.read_bytes())
        how = chance.randrange(6)
        if how < 3:
            for _ in range(1 + how * chance.randrange(3)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif how == 3:
            del data[chance.randrange(len(data)) :]
        else:
            start = chance.randrange(len(data))
            page = bytes(512) if how == 4 else chance.choice(files).read_bytes()[:512]
            data[start : start + len(page)] = page
        path.write_bytes(data)
        loaded = Forecaster.load(folder)
        return "ok" if self.answer(loaded) == self.expected else "silent"

    def edits(self, chance):
        """Tensors and JSON that were changed by somebody who knows how to compute checksums."""
        from smc_transformer.forecaster import Forecaster
        from smc_transformer.support.checksums import sealed
        from smc_transformer.support.tensor_files import read_tensors, write_tensors

        folder = self.fresh()
        name = chance.choice(["config.json", "model.safetensors", "states.safetensors", "states.safetensors"])
        if name == "config.json":
            config = json.loads((folder / name).read_text())
            change_json(config, chance)
            (folder / name).write_text(json.dumps(sealed(config), default=str))
        else:
            tensors, header = read_tensors(folder / name, ValueError)
            if chance.randrange(3) == 0:
                change_json(header, chance)
                header = json.loads(json.dumps(header, default=str))
            else:
                change_tensors(tensors, chance)
            write_tensors(folder / name, tensors, header)
        loaded = Forecaster.load(folder)
        self.answer(loaded)
        loaded.update(next_rows(loaded))
        return "ok"

    def tables(self, chance):
        """Odd tables for all methods that take one; after an error the state is what it was."""
        import pandas as pd

        table = odd_table(chance)
        method = chance.choice(["update", "update", "score", "predict", "fit"])
        try:
            if method == "fit":
                from smc_transformer.forecaster import Forecaster

                settings = self.forecaster.settings.to_dict()
                Forecaster(**settings).fit(table, progress=False)
            elif method == "predict":
                self.forecaster.predict(table, h=2, n_paths=3)
            else:
                getattr(self.forecaster, method)(table)
        except Exception:
            if self.answer(self.forecaster) != self.expected:
                return "silent"
            raise
        if method == "update":
            values = table["y"] if isinstance(table, pd.DataFrame) and "y" in table else None
            if values is not None and pd.api.types.is_datetime64_any_dtype(values):
                return "silent"
            from smc_transformer.forecaster import Forecaster

            self.forecaster = Forecaster.load(self.saved)
        return "ok"

    def settings(self, chance):
        """Odd settings of the forecaster, the architecture and the inference."""
        from smc_transformer import InferenceSettings, SMCTransformer, SMCTransformerConfig
        from smc_transformer.forecaster import Forecaster
        from smc_transformer.forecaster.settings import Settings, TrainingSettings

        kind = chance.choice([Forecaster, SMCTransformerConfig, InferenceSettings, TrainingSettings])
        names = sorted((Settings if kind is Forecaster else kind).names())
        made = kind(**{chance.choice(names): odd_value(chance) for _ in range(1 + chance.randrange(2))})
        if isinstance(made, SMCTransformerConfig) and made.d_model * made.d_ff * made.encoder_layers < 10**6:
            import torch

            model = SMCTransformer(made, generator=0)
            model.filter(torch.zeros(1, 3, made.n_inputs), 2, generator=0)
        return "ok"

    def tensors(self, chance):
        """Odd tensors for filter, forecast and stream."""
        import torch

        method = chance.choice(["filter", "forecast", "observe"])
        x = odd_tensor(chance, *((2, 2) if method == "observe" else (2, 5, 2)))
        if method == "filter":
            self.model.filter(x, odd_count(chance), generator=0)
        elif method == "forecast":
            horizon = odd_count(chance)
            known = None if chance.randrange(2) else odd_tensor(chance, 2, 3, 1)
            self.model.forecast(x, horizon, 3, known, generator=0)
        else:
            state = self.model.init_state(batch=2, generator=0)
            self.model.observe(state, torch.zeros(2, 2))
            self.model.observe(state, x)
        return "ok"

    def lines(self, chance):
        """Odd lines of a stream: each is answered, and a stream that resumes says the same."""
        from smc_transformer.forecaster import Forecaster
        from smc_transformer.forecaster.live import Service

        folder = self.fresh()
        service = Service(folder, n_paths=2, most_steps=50)
        n_before = service.n_taken
        for number in range(3):
            service.take(odd_line(chance), n_before + number + 1)
        service.close()
        expected = self.answer(service.forecaster)
        return "ok" if self.answer(Forecaster.load(folder)) == expected else "silent"

    def commands(self, chance):
        """Odd command lines: an exit code and one line of error, never a traceback."""
        from smc_transformer.cli import main

        def mostly(usual, odd):
            return usual if chance.randrange(3) else odd

        folder = self.fresh()
        table = folder.parent / chance.choice(["table.csv", "table.csv.gz", "table.parquet", "table.tsv", "table"])
        table.write_bytes(odd_file(chance))
        verb = chance.choice(["predict", "predict", "score", "backtest", "report", "stream", "fit"])
        arguments = [verb, str(table if verb == "fit" else folder)]
        out = folder.parent / chance.choice(["out", "out.csv", "out.xlsx", "table.csv", "model", "no/where/x.csv"])
        for option in chance.sample(
            [
                ["--data", str(table)],
                ["--new", str(table), "--save"],
                ["--out", str(out)],
                ["--level", mostly("80", odd_text(chance))],
                ["--horizon", mostly("2", str(odd_number(chance)))],
                ["--input", str(table)],
                ["--paths", mostly("5", str(odd_number(chance)))],
                ["--seed", mostly("1", str(odd_number(chance)))],
                ["--freq", mostly("D", odd_text(chance))],
                ["--config", f"{odd_text(chance)}={odd_text(chance)}"],
                ["--series", mostly("a", odd_text(chance))],
                ["--json"],
            ],
            chance.randrange(3),
        ):
            arguments += option
        if verb == "fit":
            arguments += ["--out", str(out), "--horizon", "2", "--input-size", "4", "--steps", "1", "--particles", "4"]
        elif verb == "report":
            arguments += ["--out", str(out), "--paths", "5"]
        elif verb != "stream":
            arguments += ["--data", str(table), "--paths", "5"][0 if verb != "predict" or chance.randrange(2) else 2 :]
        else:
            arguments += ["--input", str(table), "--paths", "5"]
        # What a shell can pass; and not so many paths that a good command would be a hang.
        arguments = [one.replace("\0", "0").encode(errors="replace").decode()[:1000] for one in arguments]
        shown = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(shown):
            try:
                code = main(arguments)
            except SystemExit as stop:
                code = stop.code
        if code in (0, 2):
            return "ok" if code == 0 else "refused"
        lines = [line for line in shown.getvalue().splitlines() if line.startswith("smct: ")]
        return "refused" if code == 1 and len(lines) == 1 else "silent"


KINDS = ("folders", "edits", "tables", "settings", "tensors", "lines", "commands")


def change_json(document, chance):
    """Replace, remove or add something anywhere in a document."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and chance.randrange(4):
            place = place[key]
            continue
        how = chance.randrange(4)
        if how == 0:
            del place[key]
        else:
            value = odd_value(chance)
            place[key] = json.loads(json.dumps(value, default=str, skipkeys=True)) if how < 3 else 1
        return


def change_tensors(tensors, chance):
    import torch

    name = chance.choice(sorted(tensors))
    tensor = tensors[name]
    how = chance.randrange(6)
    if how == 0:
        del tensors[name]
    elif how == 1:
        tensors[name] = tensor.to(chance.choice([torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool]))
    elif how == 2 and tensor.ndim:
        tensors[name] = torch.cat((tensor, tensor)) if chance.randrange(2) else tensor[:-1]
    elif how == 3:
        tensors[odd_text(chance).encode(errors="replace").decode()] = tensor
    elif tensor.numel():
        place = chance.randrange(tensor.numel())
        raw = tensor.reshape(-1).view(torch.uint8)
        size = tensor.element_size()
        for _ in range(1 + chance.randrange(3)):
            raw[place * size + chance.randrange(size)] = chance.randrange(2 if tensor.dtype == torch.bool else 256)


def next_rows(forecaster):
    import pandas as pd

    one = pd.Timedelta(days=1)
    rows = [(name, followed.last_time + one, 1.5) for name, followed in forecaster.fitted.following.series.items()]
    return pd.DataFrame(rows, columns=["unique_id", "ds", "y"])


def odd_table(chance):
    import numpy as np
    import pandas as pd

    length = chance.choice([0, 1, 2, 5, 20, 40])
    start = chance.choice(
        ["2024-02-11", "2024-02-11", "2024-02-11", "2020-01-01", "2262-04-01", "9999-12-30", "1700-01-01"]
    )
    unit = chance.choice(["us", "us", "s", "ns"])
    try:
        times = pd.date_range(start, periods=length, freq=chance.choice(["D", "D", "D", "h", "W"])).as_unit(unit)
    except (ValueError, OverflowError):
        times = pd.date_range("2024-02-11", periods=length, freq="D")
    columns = {"unique_id": chance.choice(["a", "b", "new", 5, 1.5, None, "x" * 50_000]), "ds": times}
    y = np.array([chance.gauss(3, 2) for _ in range(length)])
    columns["y"] = y
    table = pd.DataFrame(columns, index=range(length))
    for _ in range(chance.randrange(4)):
        how, name = chance.randrange(12), chance.choice(["unique_id", "ds", "y"])
        length, y = len(table), np.array([chance.gauss(3, 2) for _ in range(len(table))])
        if how == 0 and name in table:
            table = table.drop(columns=name)
        elif how == 1 and name in table:
            table = pd.concat((table, table[[name]]), axis=1)
        elif how in (2, 3, 4) and length and (table.columns == name).sum() == 1:
            cells = table[name].astype(object).to_numpy().copy()
            cells[chance.randrange(length)] = odd_value(chance)
            table[name] = pd.Series(cells, index=table.index, dtype=object)
        elif how == 5 and length:
            kinds = [pd.date_range("2020", periods=length), pd.to_timedelta(range(length), unit="D"), y + 1j, y > 0]
            table["y"] = chance.choice([*kinds, pd.period_range("2020", periods=length, freq="D"), y.astype(str)])
        elif how == 6:
            table = table.sample(frac=1, random_state=chance.randrange(100))
        elif how == 7 and "ds" in table:
            with contextlib.suppress(TypeError, AttributeError, ValueError, NotImplementedError):
                table["ds"] = table["ds"].dt.tz_localize("Europe/Berlin", nonexistent="shift_forward", ambiguous="NaT")
        elif how == 8:
            table = pd.concat((table, table.tail(2)))
        elif how == 9:
            table["y"] = chance.choice([1e300, -1e300, 1e-300, 0.0, 1e16])
        elif how == 10 and length:
            table["y"] = pd.array([None] * length, dtype="Float64")
        elif how == 11:
            return odd_value(chance)
    return table


def odd_tensor(chance, *usual):
    import torch

    shapes = [(2, 5, 2), (2, 2), (2, 1, 2), (0, 5, 2), (2, 0, 2), (2, 5, 3), (5,), (), (1, 2, 3, 4)]
    shape = usual if chance.randrange(3) else chance.choice(shapes)
    kinds = [torch.float32] * 8 + [torch.float64, torch.int64, torch.bool, torch.bfloat16]
    x = torch.ones(shape).to(chance.choice(kinds))
    how = chance.randrange(14)
    if how in (0, 8, 9) and x.numel() and x.is_floating_point():
        x.reshape(-1)[chance.randrange(x.numel())] = chance.choice([float("nan"), float("inf"), 1e38, -1e38, 1e-45])
    elif how == 1:
        return x.to_sparse() if x.ndim else x
    elif how == 2:
        return x.to("meta")
    elif how == 3:
        return odd_value(chance)
    elif how == 4 and x.ndim:
        return x.transpose(0, -1)
    elif how == 5 and x.is_floating_point():
        return x.requires_grad_()
    elif how == 6:
        return x.to(torch.complex64)
    return x


def odd_count(chance):
    return chance.choice([1, 3, 3, 3, 3, 3, odd_number(chance), odd_value(chance)])


def odd_line(chance):
    how = chance.randrange(6)
    if how == 0:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(30)))
    if how == 1:
        return chance.choice([b"[" * 100_000, b'{"a":' * 5000, b"9" * 10_000, b"{}", b"null", b'"x"', b"\xff\xfe{}"])
    row = {"unique_id": chance.choice("ab"), "ds": f"2024-02-{11 + chance.randrange(10)}", "y": chance.gauss(0, 3)}
    if how in (2, 3):
        key = chance.choice([*row, "future", "more"])
        row[key] = odd_value(chance)
    if how == 4:
        del row[chance.choice(list(row))]
    line = json.dumps(row, default=str).encode()
    if how == 5:
        line = bytearray(line)
        line[chance.randrange(len(line))] ^= 1 << chance.randrange(8)
    return bytes(line)


def odd_file(chance):
    rows = "".join(
        f"a,2024-02-{day:02d},{chance.gauss(0, 1):.3f}\n" for day in range(11, 11 + chance.choice([0, 3, 18]))
    )
    text = bytearray(("unique_id,ds,y\n" + rows).encode())
    how = chance.randrange(8)
    if how == 0:
        return bytes(chance.randrange(256) for _ in range(200))
    if how == 1:
        return b""
    for _ in range(chance.randrange(4) if how > 5 else 0):
        text[chance.randrange(len(text))] = chance.randrange(256)
    return bytes(text)


# --- running them -------------------------------------------------------------------------------------------


def work(folder, jobs, log, show):
    """In a process of its own: run the cases and write down what became of each."""
    sys.setrecursionlimit(1000)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    cases = Cases(folder)

    def too_long(*_):
        raise Hang

    signal.signal(signal.SIGALRM, too_long)
    with log.open("a") as file:
        for kind, number in jobs:
            file.write(f"{kind} {number} begun\n")
            file.flush()
            chance = random.Random(f"{kind} {number}")
            signal.alarm(SECONDS)
            said, begun = "", time.monotonic()
            try:
                outcome = getattr(cases, kind)(chance)
            except Hang:
                outcome = "hang"
            except Exception as error:
                outcome = "refused" if is_ours(error) else "foreign"
                said = f"{type(error).__name__}: {error}"
                if show or outcome == "foreign":
                    where = traceback.extract_tb(error.__traceback__)[-3:]
                    said += " | " + " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(where))
            finally:
                signal.alarm(0)
            for path in folder.glob("tmp*"):
                shutil.rmtree(path, ignore_errors=True)
            said = " ".join(said.split()).encode(errors="replace").decode()[:300]
            file.write(f"{kind} {number} {outcome} {time.monotonic() - begun:.3f} {said}\n")
            file.flush()


def run(jobs, *, show=False, until=float("inf")):
    """Counts by kind and outcome, and the bad cases; goes on in a new process after one that dies."""
    counts, bad, seconds = {kind: Counter() for kind in KINDS}, [], dict.fromkeys(KINDS, 0.0)
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "log"
        waiting, left = iter(jobs), []
        while time.monotonic() < until:
            part, n_done = left + list(itertools.islice(waiting, AT_ONCE - len(left))), 0
            if not part:
                break
            log.write_text("")
            given = json.dumps({"folder": str(folder), "jobs": part, "log": str(log), "show": show})
            worker = subprocess.Popen(
                [sys.executable, __file__, "--worker"], stdin=subprocess.PIPE, stdout=sys.stderr, text=True
            )
            worker.stdin.write(given)
            worker.stdin.close()
            changed, size, hung = time.monotonic(), 0, False
            while worker.poll() is None:
                time.sleep(0.2)
                if log.stat().st_size != size:
                    changed, size = time.monotonic(), log.stat().st_size
                hung = time.monotonic() - changed > (4 * SECONDS if size else START)
                if hung:
                    worker.kill()
                    worker.wait()
            for line in log.read_text(errors="replace").splitlines():
                kind, number, outcome, *rest = line.split(" ", 4)
                if outcome != "begun":
                    took, *said = rest
                    counts[kind][outcome] += 1
                    seconds[kind] += float(took)
                    n_done += 1
                    if outcome in BAD or show:
                        bad.append(f"{kind} {number} {outcome} {' '.join(said)}")
            if n_done < len(part):
                if not log.read_text():
                    raise RuntimeError(f"the worker could not begin: {worker.returncode}")
                kind, number = part[n_done]
                outcome = "hang" if hung else "crash"
                counts[kind][outcome] += 1
                bad.append(f"{kind} {number} {outcome} {worker.returncode}")
                n_done += 1
            left = part[n_done:]
    each = {kind: round(seconds[kind] / max(1, counts[kind].total()), 3) for kind in KINDS}
    return {"cases": sum(map(Counter.total, counts.values())), "counts": counts, "seconds": each, "bad": bad}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--worker", action="store_true")
    options = parser.parse_args()
    if options.worker:
        given = json.loads(sys.stdin.read())
        work(Path(given["folder"]), given["jobs"], Path(given["log"]), given["show"])
        return 0
    numbers = itertools.count(options.first)
    if not options.minutes:
        numbers = itertools.islice(numbers, options.cases)
    jobs = ((kind, number) for number in numbers for kind in options.only)
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    found = run(jobs, show=options.show, until=until)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 1 if any(count[name] for count in found["counts"].values() for name in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
