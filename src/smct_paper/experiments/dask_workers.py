"""Cells on the workers of a Dask cluster: each is a task of its own, and its answer is stored where the grid was begun.

A worker that dies is Dask's affair: its cell is run again elsewhere, three times at most, and then written down as
failed. The workers must have this package, and find the data sets' files where this process does.
"""

import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from smct_paper.experiments.grid import Cell
from smct_paper.experiments.workers import ERROR_LINES, Task


def work_through_dask(
    queue: deque[Cell],
    arguments: tuple[Any, ...],
    address: str | None,
    task: Task,
    began: Callable[[Cell], None],
    ended: Callable[[Cell, dict[str, Any]], None],
) -> None:
    """Run the cells on the cluster at an address, or on one with a worker for each core of this machine."""
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise ImportError(f"the engine dask needs distributed: pip install 'smc-transformer[dask]' ({error})") from None
    options = {"threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) if address is None else _There(address) as cluster, Client(cluster) as client:
        # The first in the queue are the longest, and are begun first.
        running = {
            client.submit(guarded, task, (cell, *arguments), pure=False, priority=-place): cell
            for place, cell in enumerate(queue)
        }
        queue.clear()
        for future in as_completed(list(running)):
            cell = running.pop(future)
            began(cell)
            failure = future.exception()
            ended(cell, future.result() if failure is None else {"error": f"{type(failure).__name__}: {failure}"})
            future.release()


def guarded(task: Task, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """The answer of a task, or its error; one thread for each."""
    import torch

    torch.set_num_threads(1)
    try:
        return task(*arguments)
    except Exception:
        return {"error": "".join(traceback.format_exc().splitlines(keepends=True)[-ERROR_LINES:]).strip()}


class _There:
    """A cluster that somebody else has started: nothing to end."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> str:
        return self.address

    def __exit__(self, *error: object) -> None:
        pass
