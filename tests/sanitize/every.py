"""A plugin of pytest: every n-th test only, where EVERY says so, for the slow tools that CI has some minutes for."""

import os

EVERY = int(os.environ.get("EVERY", "1"))


def pytest_collection_modifyitems(items):
    items[:] = items[::EVERY]
