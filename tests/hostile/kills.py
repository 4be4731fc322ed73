"""Kill -9 at random moments of fit, save, update and stream: what was there is there, and the same call goes on.

    python tests/hostile/kills.py --kills 8              # so many of each kind
    python tests/hostile/kills.py --only stream --seed 3

Each kind is work that ends in a known state. A child process does it and is killed after a random part of the time that
it takes undisturbed; then the folder is looked at, the same call is made again, and in the end all is compared, bit by
bit, with what the undisturbed work has left. Children are forks: they need not import torch again, so that the moments
of a kill lie in the work itself.

Prints a JSON object: of each kind the kills, how often the work was begun to be killed (it may end before), and what
went wrong.
"""

import argparse
import contextlib
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


def in_child(work, seconds=None):
    """Do work in a fork, and kill it after so many seconds; its exit code (-9: it was killed), and how long it took."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work() or 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    begun = time.monotonic()
    while seconds is None or time.monotonic() - begun < seconds:
        done, status = os.waitpid(child, os.WNOHANG if seconds is not None else 0)
        if done:
            return os.waitstatus_to_exitcode(status), time.monotonic() - begun
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), seconds


def command(*arguments, out=os.devnull):
    """Work that is a command, with its output in a file."""

    def work():
        from smc_transformer.cli import main

        with (
            open(out, "w") as file,
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(file),
            contextlib.redirect_stderr(nowhere),
        ):
            return main([str(argument) for argument in arguments])

    return work


class Kind:
    """Work on a folder, which is as `prepare` makes it, and what may be found there afterwards."""

    def __init__(self, shared):
        self.shared = shared  # a folder with a table, new rows and a model

    def prepare(self, folder):
        raise NotImplementedError

    def work(self, folder):
        raise NotImplementedError

    def check(self, folder):
        """After a kill: raise an error if what is there could not be."""

    def result(self, folder):
        """What the work has come to, to be compared."""
        return answer(folder / "model")


def answer(model):
    """Forecasts from a folder, to the last digit."""
    from smc_transformer.forecaster import Forecaster

    return Forecaster.load(model).predict(n_paths=3, h=2, seed=0).to_json(date_format="iso", double_precision=15)


def left_over(folder):
    """What unfinished work has left beside the results."""
    return sorted(path.name for path in folder.rglob("*") if ".unfinished" in path.name or ".replaced" in path.name)


class Fit(Kind):
    """A training that was killed is resumed by the same call, and comes to the same weights."""

    def prepare(self, folder):
        folder.mkdir()

    def work(self, folder):
        from helpers.command_tables import QUICK

        return command("fit", self.shared / "data.csv", *QUICK, "--steps", "4", "--out", folder / "model")

    def check(self, folder):
        if (folder / "model").exists():
            answer(folder / "model")

    def result(self, folder):
        assert not (folder / "model.training").exists(), "the checkpoints of a finished training are still there"
        return answer(folder / "model") + str((folder / "model" / "model.safetensors").read_bytes())


class Save(Kind):
    """A folder that is saved over another fit holds the one or the other, whole."""

    def prepare(self, folder):
        from smc_transformer.forecaster import Forecaster

        folder.mkdir()
        shutil.copytree(self.shared / "model", folder / "model")
        self.other = Forecaster.load(self.shared / "other")
        self.may_be = {answer(self.shared / "model"), answer(self.shared / "other")}

    def work(self, folder):
        return lambda: self.other.save(folder / "model")

    def check(self, folder):
        assert answer(folder / "model") in self.may_be, "neither the old model nor the new one"


class Update(Kind):
    """New rows are in the saved state, all of them, or not at all; then the same call takes them."""

    def prepare(self, folder):
        folder.mkdir()
        shutil.copytree(self.shared / "model", folder / "model")
        self.before, self.after = answer(folder / "model"), answer(self.shared / "updated")

    def work(self, folder):
        def update():
            if answer(folder / "model") == self.after:  # the kill came after the save
                return 0
            return command(
                "predict", folder / "model", "--new", self.shared / "new.csv", "--save", "--out", folder / "out.csv"
            )()

        return update

    def check(self, folder):
        assert answer(folder / "model") in (self.before, self.after), "neither the state before nor the one after"


class Stream(Kind):
    """Every line is answered as by a stream that was never killed."""

    def prepare(self, folder):
        folder.mkdir()
        shutil.copytree(self.shared / "model", folder / "model")

    def work(self, folder):
        number = len(list(folder.glob("answers-*")))
        given = ("--input", self.shared / "lines.jsonl", "--resume", "--paths", 5, "--save-every", 4)
        return command("stream", folder / "model", *given, out=folder / f"answers-{number}")

    def check(self, folder):
        answer(folder / "model")

    def result(self, folder):
        return answer(folder / "model") + json.dumps(stream_answers(folder), sort_keys=True)


def stream_answers(folder):
    """The answers of all runs of a stream by line; a line that a kill has cut off was answered again."""
    found = {}
    for path in sorted(folder.glob("answers-*"), key=lambda path: int(path.name.partition("-")[2])):
        for text in path.read_text().splitlines(keepends=True):
            if not text.endswith("\n"):
                continue
            one = json.loads(text)
            assert found.setdefault(str(one["line"]), one) == one, f"line {one['line']} has two answers"
    return found


ATTEMPTS = 5
"""For each kill: work may end before it."""
KINDS = {"fit": Fit, "save": Save, "update": Update, "stream": Stream}


def make_shared(folder):
    """Two fits of a small table, rows that come after it, and lines of a stream; all work is done once, undisturbed."""
    import torch
    from helpers.command_tables import QUICK, json_lines, waves, write

    torch.set_num_threads(1)
    table = waves(60, 50)
    write(table, folder / "data.csv")
    later = waves(80, 80, seed=1)
    known = table.groupby("unique_id")["ds"].max()
    later = later[later["ds"] > later["unique_id"].map(known)]
    write(later.groupby("unique_id").head(5), folder / "new.csv")
    (folder / "lines.jsonl").write_text(json_lines(later.groupby("unique_id").head(8)))
    for name, seed in (("model", 0), ("other", 1)):
        assert command("fit", folder / "data.csv", *QUICK, "--seed", seed, "--out", folder / name)() == 0
    shutil.copytree(folder / "model", folder / "updated")
    update = command("predict", folder / "updated", "--new", folder / "new.csv", "--save", "--out", folder / "out.csv")
    assert update() == 0


def run(kinds, n_kills, seed, folder):
    """Counts and faults of each kind."""
    found = {}
    for name in kinds:
        chance, kind, bad = random.Random(f"{name} {seed}"), KINDS[name](folder), []
        undisturbed = folder / f"{name}-undisturbed"
        kind.prepare(undisturbed)
        code, seconds = in_child(kind.work(undisturbed))
        assert code == 0, f"{name} does not work"
        expected, kills, attempts = kind.result(undisturbed), 0, 0
        while kills < n_kills and attempts < ATTEMPTS * n_kills:
            place = folder / f"{name}-{attempts}"
            kind.prepare(place)
            try:
                for again in range(chance.randrange(1, 4)):  # kills of what was killed before
                    attempts += 1
                    code, took = in_child(kind.work(place), chance.random() * seconds)
                    kills += code == -signal.SIGKILL
                    kind.check(place)
                    if code != -signal.SIGKILL:
                        assert code == 0, f"the call after a kill failed: {code}"
                        seconds = seconds if again else min(seconds, 1.2 * took)  # the machine is quicker now
                        break
                code, took = in_child(kind.work(place))
                assert code == 0, f"the call after a kill failed: {code}"
                assert kind.result(place) == expected, "the result is another one"
                assert not left_over(place), f"left over: {left_over(place)}"
            except Exception as error:
                bad.append(f"{name} {attempts}: {type(error).__name__}: {error}")
            shutil.rmtree(place, ignore_errors=True)
        found[name] = {"kills": kills, "attempts": attempts, "bad": bad}
    return found


def tell(found):
    """Print what was found; the exit code."""
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 1 if any(kind["bad"] for kind in found.values()) else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=8, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        make_shared(Path(name))
        found = run(options.only, options.kills, options.seed, Path(name))
    return tell(found)


if __name__ == "__main__":
    sys.exit(main())
