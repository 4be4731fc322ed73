"""The model that all tests of commands share, and the table that it was trained on."""

import shutil

import pytest


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the model, to do with as one likes."""
    shutil.copytree(trained / "model", tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="session")
def data(trained):
    """The table that the model was trained on."""
    return str(trained / "data.csv")
