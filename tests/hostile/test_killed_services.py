"""kill -9 at random moments: no answered row is lost or taken twice, and the states are those of an undisturbed run.

The process that is killed is forked from this one, so that a kill costs a moment and not an import of torch.
`SMC_TRANSFORMER_KILLS=200` makes as many kills.
"""

import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers.forecaster_tables import make, walks
from helpers.postgresql import server

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.folder.packed import pack_series
from smc_transformer.forecaster.live import Service

N_KILLS = int(os.environ.get("SMC_TRANSFORMER_KILLS", "12"))
N_ROWS = max(120, 4 * N_KILLS)
SETTINGS = {"n_paths": 2, "save_every": 7}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    make().fit(walks(40, 40, 40), progress=False).save(folder)
    return folder


def rows():
    """Rows of three series and two that are new, in any order across them; some are wrong, some are repeated."""
    chance, next_time, lines = random.Random(0), {"a": 40, "b": 40, "c": 40, "new": 7, "newer": 90}, []
    for _ in range(N_ROWS):
        name = chance.choice(list(next_time))
        if chance.random() < 0.1:
            lines.append(b'{"unique_id": "a", "ds": 40, "y": 1e999}')
        elif chance.random() < 0.1 and lines:
            lines.append(chance.choice(lines))
        else:
            value = None if chance.random() < 0.05 else round(chance.gauss(0, 1), 3)
            lines.append(json.dumps({"unique_id": name, "ds": next_time[name], "y": value}).encode())
            next_time[name] += 1
    return lines


def batches(lines):
    """The lines in batches of any size: what was taken together makes no difference."""
    chance, start = random.Random(os.getpid()), 0
    while start < len(lines):
        size = chance.choice([1, 1, 2, 5, 20])
        yield lines[start : start + size]
        start += size


def serve_until_killed(folder, url, lines, out):
    """What a child process does: answer all lines that have not been answered, and write the answers down."""
    torch.set_num_threads(1)
    retire_after = random.Random(os.getpid()).choice([None, 1e-6])  # whether series are in memory or away
    service = Service(folder, store=url, retire_after=retire_after, **SETTINGS)
    with out.open("a") as file:
        for answers in itertools.chain([service.last_answers], service.answers(batches(lines), skip=service.n_taken)):
            file.writelines(json.dumps(answer) + "\n" for answer in answers)
            file.flush()


@pytest.mark.skipif(importlib.util.find_spec("uvicorn") is None, reason="needs the extra serve")
def test_a_server_killed_at_random_moments(saved, tmp_path):
    """`server_kills.py` makes as many kills as one likes."""
    sys.path.insert(0, str(Path(__file__).parent))
    from server_kills import run

    found = run(saved, tmp_path, 3, 7, "--retire-after", "0.05s")
    assert found["bad"] == []
    assert found["series"] > 3  # some have begun
    assert sum(found["kills"].values()) == 3
    assert found["rows"] > 0


def states(folder):
    fitted = Forecaster.load(folder).fitted
    return {name: pack_series(fitted, "", name) for name in fitted.following.series}


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_killed_at_random_moments(saved, tmp_path, where):
    if where == "postgresql":
        with server() as url:
            kill_again_and_again(saved, tmp_path, url)
    else:
        kill_again_and_again(saved, tmp_path, None)


def kill_again_and_again(saved, tmp_path, url):
    folder, undisturbed = (shutil.copytree(saved, tmp_path / name) for name in ("model", "undisturbed"))
    lines, out, chance = rows(), tmp_path / "answers.jsonl", random.Random(1)
    service, expected, moments = Service(undisturbed, **SETTINGS), [], []
    for answers in service.answers([line] for line in lines):
        expected += answers
        moments.append(time.perf_counter())
    service.close()
    whole = 2 * (moments[-1] - moments[N_ROWS // 2])  # the first half is slow: kernels are loaded
    n_kills = 0
    while True:
        child = os.fork()
        if child == 0:
            try:
                serve_until_killed(folder, url, lines, out)
                os._exit(0)
            finally:
                os._exit(1)
        patience = chance.uniform(0, 2.5 * whole / N_KILLS) if n_kills < N_KILLS else 600
        end = time.monotonic() + patience
        status = 0
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.001)
        if ended == (0, 0):
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            assert os.WTERMSIG(status) == signal.SIGKILL
            n_kills += 1
            continue
        assert ended[1] == 0, "the child failed by itself"
        break
    found = {}
    for text in out.read_text().splitlines():
        try:
            answer = json.loads(text)
        except ValueError:
            continue  # a kill in the middle of a write to this file; the answer is given again
        assert found.setdefault(answer["line"], answer) == answer
    assert [found.get(number) for number in range(1, N_ROWS + 1)] == expected
    assert states(folder) == states(undisturbed)
    assert set(states(folder)) == {"a", "b", "c", "new", "newer"}
    assert Forecaster.load(folder).predict()["y"].tolist() == Forecaster.load(undisturbed).predict()["y"].tolist()
    assert n_kills >= min(N_KILLS, 3), "the run was over before it could be killed"
    Path(tmp_path / "kills").write_text(str(n_kills))
