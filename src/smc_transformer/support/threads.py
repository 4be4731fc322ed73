"""Work of numpy in as many threads as torch has: numpy lets go of Python's lock while it sorts and computes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

PIECES = 4
"""For each thread, so that one which is put aside by the system does not hold up the others for long."""
LEAST = 8
"""Rows in a piece: a piece costs some ten microseconds by itself."""


def in_threads(work: Callable[[slice], None], n_rows: int) -> None:
    """Call `work` with slices that make up all rows; in other threads, but for few rows or where torch has one."""
    n_threads = torch.get_num_threads()
    size = max(LEAST, -(-n_rows // (PIECES * n_threads)))
    pieces = [slice(first, min(first + size, n_rows)) for first in range(0, n_rows, size)]
    if n_threads == 1 or len(pieces) < 2:
        work(slice(0, n_rows))
        return
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, pieces))  # raises what the first of them has raised
