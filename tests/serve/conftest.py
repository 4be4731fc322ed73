"""A forecaster to be served, and a client of it."""

import importlib.util
import shutil

import pytest
from helpers.browser import browser

__all__ = ["browser"]

NEEDED = ("fastapi", "httpx", "prometheus_client", "uvicorn")
# Without the extra `serve` these tests cannot even be imported.
collect_ignore_glob = [] if all(importlib.util.find_spec(name) for name in NEEDED) else ["test_*.py"]


@pytest.fixture(scope="session")
def followed(tmp_path_factory):
    """A saved forecaster of the series a, b and c, with whole-number times up to 39."""
    from helpers.forecaster_tables import make, walks  # not above: the hook that checks shapes is not there yet

    folder = tmp_path_factory.mktemp("followed") / "model"
    make().fit(walks(40, 40, 40), progress=False).save(folder)
    return folder


@pytest.fixture
def folder(followed, tmp_path):
    return shutil.copytree(followed, tmp_path / "model")


@pytest.fixture
def client(folder):
    from helpers.served import serving

    with serving(folder) as found:
        yield found
