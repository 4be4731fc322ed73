"""The journeys of docs/architecture.md go where the page says: traced, in at most twelve files each."""

import ast
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from helpers.forecaster_tables import make, walks

from smc_transformer import SMCTransformer, SMCTransformerConfig, Trainer, cli
from smc_transformer.kernels import library

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
JOURNEYS = PAGE[PAGE.index("## Four journeys") : PAGE.index("## How to add a part")].split("\n\n**")[1:]
TRAINING, FIT, STREAM, EXPERIMENT = JOURNEYS


def places(journey):
    """Pairs of a file and a function or class in it, from items such as "1. `file`, `one`, later `other`: ..."."""
    found = []
    for item in re.findall(r"^\d+\. (.*(?:\n   .*)*)", journey, re.MULTILINE):
        file, *names = re.findall(r"`([^`]+)`", re.split(r"[:;]|\.(?:\s|$)", item)[0])
        folder = ROOT / "src" if file.startswith("smct_paper") else ROOT / "src" / "smc_transformer"
        found += [(folder / file, name) for name in names]
    return found


def defined(file):
    """Functions and classes of a file, methods as Class.method."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
    return names


class Visited:
    """The functions that are entered within the block."""

    def __enter__(self):
        self.found = set()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)

    def _note(self, frame, event, argument):
        if event == "call":
            self.found.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    def has(self, file, name):
        return any(where == str(file) and f"{what}.".startswith(f"{name}.") for where, what in self.found)


@pytest.mark.parametrize("journey", JOURNEYS, ids=["training step", "fit", "streamed row", "experiment"])
def test_what_a_journey_names_is_there(journey):
    named = places(journey)
    assert 10 <= len({file for file, _ in named}) <= 12
    assert [(file.name, name) for file, name in named if name not in defined(file)] == []


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def training_steps(folder):
    model = SMCTransformer(SMCTransformerConfig(n_inputs=1), generator=0)
    x = torch.randn(8, 7, 1, generator=torch.Generator().manual_seed(0))
    return lambda: Trainer(model, epochs=1, progress=False).fit(x)


def fit(folder):
    return lambda: make().fit(walks(40, 40), progress=False)


def streamed_rows(folder):
    lines = folder.with_suffix(".jsonl")
    rows = [{"unique_id": "a", "ds": time, "y": 0.5} for time in range(40, 46)]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return lambda: cli.main(["stream", str(folder), "--input", str(lines), "--paths", "5"])


@pytest.mark.parametrize(("journey", "prepare"), [(TRAINING, training_steps), (FIT, fit), (STREAM, streamed_rows)])
def test_a_journey_goes_through_what_it_names(journey, prepare, folder):
    if library(torch.empty(0)) is None:
        pytest.skip("without kernels it goes through other files")
    travel = prepare(folder)
    with Visited() as visited:
        travel()
    assert [(file.name, name) for file, name in places(journey) if not visited.has(file, name)] == []
