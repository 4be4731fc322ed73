"""Commands that other packages bring, by their entry points.

Read from the files of installed packages: `importlib.metadata` would say the same, but its import takes half the time
of `smct --help`.
"""

import os
import sys
from collections.abc import Iterator

FILE = "entry_points.txt"


def entry_points(group: str) -> dict[str, str]:
    """Names and modules of a group of entry points; of two with one name, the one that stands earlier on the path."""
    found: dict[str, str] = {}
    for text in _files():
        inside = False
        for line in map(str.strip, text.splitlines()):
            if line.startswith("["):
                inside = line == f"[{group}]"
            elif inside and "=" in line and not line.startswith(("#", ";")):
                name, _, module = line.partition("=")
                found.setdefault(name.strip(), module.strip())
    return found


def _files() -> Iterator[str]:
    """The entry points of all packages that are installed as folders."""
    for folder in dict.fromkeys(sys.path):
        try:
            names = sorted(name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info")))
        except OSError:  # a zip file, or nothing
            continue
        for name in names:
            try:
                with open(os.path.join(folder, name, FILE), encoding="utf-8") as file:
                    yield file.read()
            except (OSError, ValueError):  # it has none, or none that can be read
                continue
