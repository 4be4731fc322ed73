"""The experiments with stand-ins for the methods, in this process and in others."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import helpers.experiment_stand_ins as stand_ins
import pytest

from smct_paper.experiments import runner


@pytest.fixture
def standing_in(monkeypatch):
    """Methods and scores are stand-ins, here and in the workers."""
    for name, module in stand_ins.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(runner, "run_grid", partial(runner.run_grid, task=stand_ins.run_cell))


class Command:
    """`smct experiment ...` in a process of its own, with the stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "results"
        self.journal = folder / "journal"
        self.repaired = folder / "repaired"

    def start(self, *arguments: str, seconds: float = 0.5) -> subprocess.Popen:
        environment = {
            **os.environ,
            "STAND_IN_JOURNAL": str(self.journal),
            "STAND_IN_REPAIRED": str(self.repaired),
            "STAND_IN_SECONDS": str(seconds),
        }
        command = [sys.executable, stand_ins.__file__, "experiment", *arguments, "--out", str(self.out)]
        # A shell's background jobs ignore Ctrl-C, and so would what they start: these tests need it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def run(self, *arguments: str, **options: float) -> tuple[int, str, str]:
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def noted(self) -> list[str]:
        """What was trained, a line for each."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def finished(self) -> list[Path]:
        """Files of cells, without drafts."""
        return sorted((self.out / "cells").glob("[!.]*.json"))


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)
