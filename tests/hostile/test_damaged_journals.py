"""A journal of release 0.2 in which a bit has flipped is refused: a replayed row must be the one that was answered."""

import json
import shutil

import pytest
from helpers.flips import refused_after_flips
from helpers.forecaster_tables import make, walks

from smc_transformer.forecaster import Forecaster, SavedForecasterError
from smc_transformer.support.checksums import sealed

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run the package


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A stream of release 0.2 that was killed after three lines."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    make().fit(walks(40), progress=False).save(folder)
    fit = json.loads((folder / "config.json").read_text())["fit"]
    head = {"format": "smc-transformer-stream", "version": 2, "fit": fit, "distrust": None, "lines": 0, "answer": None}
    entries = [
        {"line": number, "row": {"unique_id": "a", "ds": time, "y": 0.125}, "answer": {"line": number}}
        for number, time in enumerate((40, 41, 42), start=1)
    ]
    (folder / "stream.jsonl").write_text("".join(json.dumps(sealed(one)) + "\n" for one in (head, *entries)))
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def test_a_flipped_bit_is_refused_or_means_the_same(saved, folder):
    assert refused_after_flips(folder / "stream.jsonl", saved, b'"y": 0.125', n_places=60) > 3


@pytest.mark.parametrize(
    "entry",
    [
        [],
        {"line": 1, "row": None},
        {"line": "1", "row": None, "answer": None},
        {"line": 1, "row": [], "answer": None},
        {"line": 1, "row": {"unique_id": ["a"], "ds": 43, "y": 1}, "answer": None},
        {"line": 1, "row": {"unique_id": "a", "ds": 10**9, "y": 1}, "answer": None},
        {"line": 1, "row": {"unique_id": "a", "ds": 43, "y": 10**400}, "answer": None},
        {"line": 1, "row": None, "answer": 7},
    ],
)
def test_entries_that_no_stream_writes_are_refused_with_any_checksum(folder, entry):
    path = folder / "stream.jsonl"
    text = json.dumps(sealed(entry) if isinstance(entry, dict) else entry)
    path.write_text(path.read_text() + text + "\n")
    with pytest.raises(SavedForecasterError, match=r"stream\.jsonl is damaged"):
        Forecaster.load(folder)
