"""Stand-ins for the methods and their scores: quick, and they fail, die or linger when their name says so.

What they do is the experiments' own code all the same: the grid, the workers, the store. As a script this file is the
command `smct` with the stand-ins in place (worker processes run it again, so they have them too); there data and torch
are stand-ins as well, because torch takes seconds to load and every run starts several processes.
"""

import os
import signal
import sys
import time
import types
from dataclasses import dataclass
from functools import partial
from pathlib import Path


class Method:
    def __init__(self, *, behaviour, epochs=50, batch_size=32):
        self._settings = {"behaviour": behaviour, "epochs": epochs, "batch_size": batch_size}

    def settings(self):
        return self._settings

    def fit(self, data, *, seed, progress=False):
        note_down(self._settings["behaviour"], data.name, seed)
        behaviour = self._settings["behaviour"]
        if behaviour == "fails" and not Path(os.environ.get("STAND_IN_REPAIRED", "/nowhere")).exists():
            raise ValueError(f"cannot fit {data.name}")
        if behaviour == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "slow":
            time.sleep(float(os.environ.get("STAND_IN_SECONDS", "0.5")))
        return {"epochs_run": self._settings.get("epochs"), "n_train": len(data.train), "validation": float("nan")}


class Untrained(Method):
    def __init__(self, behaviour="untrained"):
        self._settings = {"behaviour": behaviour}

    def settings(self):
        return {}


def note_down(*words):
    """What was really run, in a file that the test reads."""
    journal = os.environ.get("STAND_IN_JOURNAL")
    if journal:
        with Path(journal).open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")


@dataclass(frozen=True)
class TaskScores:
    metrics: dict
    per_step: dict
    pit: list | None
    coverage: dict | None
    n_windows: int


def evaluate(method, data, *, n_windows, n_samples=1000, seed):
    count = min(len(data.test), n_windows or len(data.test))
    mse = float("inf") if method._settings["behaviour"] == "overflows" else 0.5 + seed

    def scores(steps, extra):
        metrics = {"mse": mse, "crps": 0.25, "picp": None} | extra
        return TaskScores(metrics, {"mse": [0.5] * steps}, [1] * 20, {"levels": (0.5,), "shares": (0.5,)}, count)

    return {
        "unistep": scores(data.length, {"nll": 1.0}),
        "multistep": scores(data.horizon, {"energy_score": 1.0}),
    }


def smc_method(config, dataset, profile):
    return Method(behaviour=f"smc {config}", epochs=3 if profile == "quick" else 30)


def modules():
    """Modules in the place of real ones, by name."""
    baselines = types.ModuleType("smct_paper.baselines")
    behaviours = ("plain", "slow", "fails", "dies", "overflows")
    registry = {name: partial(Method, behaviour=name) for name in behaviours}
    baselines.BASELINES = registry | {
        "bayesian_lstm_3": partial(Method, behaviour="bayesian"),
        "naive": Untrained,
    }
    baselines.BayesOptimal = partial(Untrained, "true")
    baselines.Method = Method
    evaluation = types.ModuleType("smct_paper.evaluation")
    evaluation.evaluate = evaluate
    settings = types.ModuleType("smct_paper.experiments.smc_settings")
    settings.ABLATIONS = {"best-no-noise": {}, "best-no-linear-path": {}}
    settings.smc_method = smc_method
    return {module.__name__: module for module in (baselines, evaluation, settings)}


@dataclass(frozen=True)
class Windows:
    name: str
    train: range = range(800)
    test: range = range(100)
    length: int = 24
    horizon: int = 12


def quick_modules():
    """Modules in the place of those that load torch, and of torch: for processes that do nothing else."""
    torch = types.ModuleType("torch")
    torch.set_num_threads = lambda count: None
    datasets = types.ModuleType("smct_paper.datasets")
    datasets.SYNTHETIC = datasets.DATASETS = {
        name: types.SimpleNamespace(batch_size=32, file=None) for name in ("model1", "model2", "model3")
    }
    datasets.load_windows = lambda name, **_: Windows(name)
    files = types.ModuleType("smct_paper.datasets.files")
    files.locate_file = None  # there are none
    return {module.__name__: module for module in (torch, datasets, files)}


def run_cell(cell, profile, data_dir):
    """The real thing, with the stand-ins in place in the worker."""
    sys.modules.update(modules())
    from smct_paper.experiments.cells import run_cell

    return run_cell(cell, profile, data_dir)


if __name__ in ("__main__", "__mp_main__"):
    sys.modules.update(modules() | quick_modules())

if __name__ == "__main__":
    from smc_transformer import cli

    sys.exit(cli.main(sys.argv[1:]))
