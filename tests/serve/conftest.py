"""A forecaster to be served, and a client of it."""

import importlib.util
import shutil

import pytest
from helpers.browser import browser

__all__ = ["browser"]

NEEDED = ("fastapi", "httpx", "prometheus_client", "uvicorn")
# Without the extra `serve` these tests cannot even be imported.
collect_ignore_glob = [] if all(importlib.util.find_spec(name) for name in NEEDED) else ["test_*.py"]


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture
def client(folder):
    from helpers.served import serving

    with serving(folder) as found:
        yield found
