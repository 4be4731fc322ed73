"""Runs the grid in several processes: longest cells first, each stored when it is finished."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from smct_paper.experiments.cells import run_cell
from smct_paper.experiments.dask_workers import work_through_dask
from smct_paper.experiments.grid import Cell
from smct_paper.experiments.methods import wanted_of
from smct_paper.experiments.profiles import Profile
from smct_paper.experiments.progress import GridProgress, display, expected_cost
from smct_paper.experiments.store import State, Store
from smct_paper.experiments.versions import versions
from smct_paper.experiments.workers import Task, Worker, n_cores, wait_for

POLL_SECONDS = 1.0


def states(cells: Sequence[Cell], profile: Profile, store: Store) -> dict[Cell, State]:
    """How far each cell is."""
    return {cell: store.state(cell, wanted) for cell, wanted in wanted_of(cells, profile).items()}


def unavailable_data(cells: Sequence[Cell], data_dir: Path | None) -> dict[str, str]:
    """Find or download the files of the data sets, once for all workers; returns what went wrong by data set."""
    from smct_paper.datasets import DATASETS
    from smct_paper.datasets.files import locate_file

    errors = {}
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        file = DATASETS[dataset].file
        try:
            if file is not None:
                locate_file(file, data_dir)
        except (OSError, ValueError, ImportError) as error:
            errors[dataset] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return errors


def run_grid(
    cells: Sequence[Cell],
    profile: Profile,
    store: Store,
    *,
    jobs: int | None = None,
    data_dir: Path | None = None,
    console: Console,
    task: Task = run_cell,
    engine: str | None = None,
    address: str | None = None,
) -> GridProgress:
    """Run the cells, all of them: leave out the finished ones before (`states`). Returns what finished and failed.

    results.json is written at the end, also of a run that is interrupted. A cell that fails is written down with its
    error, and the rest goes on. There are as many worker processes as `jobs`, by default as there are cores, which
    they share; each runs `task(cell, profile, data_dir)`. With the engine "dask" they are tasks of the Dask cluster at
    `address`, or of one on this machine.

    Raises:
        KeyboardInterrupt: Ctrl-C, or a signal to end; what was finished is written down.
    """
    jobs = jobs or n_cores()
    wanted = wanted_of(cells, profile)
    made_with = versions()
    unavailable = unavailable_data(cells, data_dir)
    progress = GridProgress(cells, min(jobs, max(1, len(cells))))
    try:
        with _ending_is_an_interrupt(), display(progress, console) as shown:

            def ended(cell: Cell, answer: dict[str, Any]) -> None:
                store.write(cell, {**wanted[cell], **answer, "versions": made_with})
                shown.ended(cell, progress.end(cell, answer.get("error")), answer)

            queue: deque[Cell] = deque()
            for cell in sorted(cells, key=expected_cost, reverse=True):
                if cell.dataset in unavailable:
                    progress.begin(cell)
                    ended(cell, {"error": unavailable[cell.dataset]})
                else:
                    queue.append(cell)
            if engine == "dask":
                work_through_dask(queue, (profile, data_dir), address, task, progress.begin, ended)
                return progress
            start_worker = partial(Worker, task, n_threads=max(1, n_cores() // jobs))
            _work_through(queue, (profile, data_dir), jobs, start_worker, progress.begin, ended)
    finally:
        store.assemble()
    return progress


def _work_through(
    queue: deque[Cell],
    arguments: tuple[Any, ...],
    jobs: int,
    start_worker: Callable[[], Worker],
    began: Callable[[Cell], None],
    ended: Callable[[Cell, dict[str, Any]], None],
) -> None:
    idle: list[Worker] = []
    busy: dict[Worker, Cell] = {}
    try:
        while queue or busy:
            while queue and len(busy) < jobs:
                worker = idle.pop() if idle else start_worker()
                cell = busy[worker] = queue.popleft()
                worker.begin((cell, *arguments))
                began(cell)
            for worker in wait_for(list(busy), POLL_SECONDS):
                answer, alive = worker.finish()
                ended(busy[worker], answer)
                del busy[worker]
                if alive:
                    idle.append(worker)
                else:
                    worker.stop()
    finally:
        for worker in (*idle, *busy):
            worker.stop()


@contextmanager
def _ending_is_an_interrupt() -> Iterator[None]:
    """Let the signal to end (kill, timeout, a batch system) tidy up as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
