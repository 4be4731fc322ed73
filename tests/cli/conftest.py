"""A model that all tests of commands share: two series of hourly values, 80 and 60 rows long."""

import shutil

import pytest
from helpers.command_tables import QUICK, waves, write

from smc_transformer.cli import main


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert main(["fit", write(waves(80, 60), folder / "data.csv"), *QUICK, "--out", str(folder / "model")]) == 0
    return folder


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the model, to do with as one likes."""
    shutil.copytree(trained / "model", tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="session")
def data(trained):
    """The table that the model was trained on."""
    return str(trained / "data.csv")
