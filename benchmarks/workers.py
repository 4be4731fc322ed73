"""Processes of an engine: those below this one that have loaded torch, what they hold and what they have used."""

import os
from pathlib import Path
from typing import NamedTuple


class Usage(NamedTuple):
    megabytes: int  # resident
    cpu_seconds: float


def workers() -> dict[int, Usage]:
    """By process id; one that ends meanwhile is left out."""
    found = {pid: _usage(pid) for pid in _below(os.getpid())}
    return {pid: usage for pid, usage in found.items() if usage is not None}


def _usage(pid: int) -> Usage | None:
    try:
        if "libtorch_cpu" not in Path(f"/proc/{pid}/maps").read_text():
            return None
        fields = _fields(pid)
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    pages = int(fields[21])
    return Usage(pages * os.sysconf("SC_PAGE_SIZE") // 10**6, ticks / os.sysconf("SC_CLK_TCK"))


def _below(pid: int) -> set[int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(_fields(folder.name)[1])
        except OSError:
            continue
    found: set[int] = set()
    newest = {pid}
    while newest:
        newest = {one for one, parent in parents.items() if parent in newest} - found
        found |= newest
    return found


def _fields(pid: int | str) -> list[str]:
    """/proc/pid/stat from the state on: the name before it may have spaces and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
