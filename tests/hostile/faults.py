"""A disk that fails at every operation in turn, under fit, save, update and stream: what was there is there.

    python tests/hostile/faults.py                       # every operation of every kind
    python tests/hostile/faults.py --only fit --most 10  # of a kind, some of them
    python tests/hostile/faults.py --only stream --numbers 7 38

The kinds are those of kills.py. Undisturbed work is counted first: writes, truncations, flushes, renames and new
folders, those of SQLite too (failing_disk.c, which is preloaded). Then the work is done once for each of them, which
fails; and once more for each with a disk that stays full from there on. Every time the call must end with success or an
error of ours, nothing unfinished may be left, what is in the folder must load, and the same call must then come to the
very result of undisturbed work.

Prints a JSON object: of each kind the operations, the faults that were tried, how many of them ended in an error (a
flush of a folder's names may fail unseen), and what went wrong.
"""

import argparse
import ctypes
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from kills import KINDS, in_child, left_over, make_shared, tell

REFUSED, FOREIGN = 1, 3
"""Exit codes of a child: an error that says what has failed, and any other."""


def failing(work, place, number, *, lasting=False, counted=None):
    """Work during which an operation on the model's files fails; the number of operations goes into a file."""

    def child():
        disk = ctypes.CDLL(None)
        disk.arm(os.fsencode(place / "model"), number, lasting)
        try:
            return work()
        except OSError:
            return REFUSED
        except Exception as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            return FOREIGN
        finally:
            found = disk.operations()
            disk.arm(b"", 0, False)
            if counted is not None:
                counted.write_text(str(found))

    return child


def attempt(kind, place, number, *, lasting, expected):
    """One fault, and the same call after it; whether the fault came to light."""
    kind.prepare(place)
    code, _ = in_child(failing(kind.work(place), place, number, lasting=lasting))
    assert code in (0, REFUSED), f"the call ended with {code}"
    assert not left_over(place), f"left over: {left_over(place)}"
    kind.check(place)
    again, _ = in_child(kind.work(place))
    assert again == 0, f"the call after a fault failed: {again}"
    assert kind.result(place) == expected, "the result is another one"
    assert not left_over(place), f"left over afterwards: {left_over(place)}"
    return code == REFUSED


def run(kinds, most, numbers, folder):
    """Counts and faults of each kind; of more operations than `most`, some are chosen."""
    found = {}
    for name in kinds:
        kind, bad, errors, tried = KINDS[name](folder), [], 0, 0
        undisturbed, counted = folder / f"{name}-undisturbed", folder / "counted"
        kind.prepare(undisturbed)
        code, _ = in_child(failing(kind.work(undisturbed), undisturbed, 0, counted=counted))
        assert code == 0, f"{name} does not work"
        expected, n_operations = kind.result(undisturbed), int(counted.read_text())
        cases = [(number, lasting) for number in numbers or range(1, n_operations + 1) for lasting in (False, True)]
        if most is not None and most < len(cases):
            cases = random.Random(name).sample(cases, most)
        for number, lasting in cases:
            place = folder / f"{name}-{number}-{lasting}"
            tried += 1
            try:
                errors += attempt(kind, place, number, lasting=lasting, expected=expected)
            except Exception as error:
                lasts = ", and all after it" if lasting else ""
                bad.append(f"{name}, operation {number}{lasts}: {type(error).__name__}: {error}")
            shutil.rmtree(place, ignore_errors=True)
        found[name] = {"operations": n_operations, "tried": tried, "errors": errors, "bad": bad}
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, help="of each kind (default: all)")
    parser.add_argument("--numbers", type=int, nargs="+", help="of operations (default: all)")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--preloaded", action="store_true", help="used by this program itself")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if not options.preloaded:
            library = Path(name) / "failing_disk.so"
            source = Path(__file__).parent / "failing_disk.c"
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True)
            environment = {**os.environ, "LD_PRELOAD": str(library)}
            return subprocess.run([sys.executable, *sys.argv, "--preloaded"], env=environment).returncode
        make_shared(Path(name))
        found = run(options.only, options.most, options.numbers, Path(name))
    return tell(found)


if __name__ == "__main__":
    sys.exit(main())
