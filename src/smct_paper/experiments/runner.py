"""Runs the grid in several processes: longest cells first, each stored when it is finished."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from smct_paper.experiments.cells import run_cell
from smct_paper.experiments.costs import expected_cost
from smct_paper.experiments.grid import Cell
from smct_paper.experiments.profiles import Profile
from smct_paper.experiments.progress import GridProgress, LiveDisplay, PlainDisplay, display
from smct_paper.experiments.store import State, Store
from smct_paper.experiments.versions import versions
from smct_paper.experiments.workers import Task, Worker, n_cores, wait_for

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: errors by cell, and the number of cells that it finished."""

    finished: int
    failed: dict[Cell, str]


def wanted_of(cell: Cell, profile: Profile) -> dict[str, Any]:
    """What a cell is run with, as it is written down; a finished cell with anything else does not count."""
    return {"profile": profile.name, "settings": _settings(cell, profile), "evaluation": profile.evaluation()}


def states(cells: Sequence[Cell], profile: Profile, store: Store) -> dict[Cell, State]:
    """How far each cell is."""
    return {cell: store.state(cell, wanted) for cell, wanted in _wanted(cells, profile).items()}


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
) -> Outcome:
    """Run the cells, all of them: leave out the finished ones before (`states`).

    results.json is written at the end, also of a run that is interrupted. A cell that fails is written down with its
    error, and the rest goes on.

    Args:
        cells: what to run.
        profile: how long to train, what to score.
        store: where results go.
        jobs: worker processes; None: as many as there are cores, which the workers share.
        data_dir: where the data sets are; None: where `load_windows` looks by itself.
        console: shows progress.
        task: runs a cell in a worker, `run_cell(cell, profile, data_dir)`.

    Raises:
        KeyboardInterrupt: Ctrl-C, or a signal to end; what was finished is written down.
    """
    jobs = jobs or n_cores()
    wanted = _wanted(cells, profile)
    made_with = versions()
    unavailable = unavailable_data(cells, data_dir)
    progress = GridProgress(cells, min(jobs, max(1, len(cells))))

    def write_down(cell: Cell, answer: dict[str, Any]) -> None:
        store.write(cell, {**wanted[cell], **answer, "versions": made_with})

    def start_worker() -> Worker:
        return Worker(task, n_threads=max(1, n_cores() // jobs))

    queue = deque(sorted(cells, key=expected_cost, reverse=True))
    try:
        with _ending_is_an_interrupt(), display(progress, console) as shown:
            for cell in [cell for cell in queue if cell.dataset in unavailable]:
                queue.remove(cell)
                answer = {"error": unavailable[cell.dataset]}
                write_down(cell, answer)
                progress.begin(cell)
                shown.ended(cell, progress.end(cell, answer["error"]), answer)
            _work_through(queue, (profile, data_dir), jobs, start_worker, write_down, progress, shown)
    finally:
        store.assemble()
    return Outcome(finished=len(progress.finished), failed=progress.failed)


def _work_through(
    queue: deque[Cell],
    arguments: tuple[Any, ...],
    jobs: int,
    start_worker: Callable[[], Worker],
    write_down: Callable[[Cell, dict[str, Any]], None],
    progress: GridProgress,
    shown: PlainDisplay | LiveDisplay,
) -> None:
    idle: list[Worker] = []
    busy: dict[Worker, Cell] = {}
    try:
        while queue or busy:
            while queue and len(busy) < jobs:
                worker = idle.pop() if idle else start_worker()
                cell = busy[worker] = queue.popleft()
                worker.begin((cell, *arguments))
                progress.begin(cell)
            for worker in wait_for(list(busy), POLL_SECONDS):
                cell = busy[worker]
                answer, alive = worker.finish()
                write_down(cell, answer)
                del busy[worker]
                seconds = progress.end(cell, answer.get("error"))
                shown.ended(cell, seconds, answer)
                if alive:
                    idle.append(worker)
                else:
                    worker.stop()
    finally:
        for worker in (*idle, *busy):
            worker.stop()


def _wanted(cells: Sequence[Cell], profile: Profile) -> dict[Cell, dict[str, Any]]:
    """`wanted_of` each cell, worked out once for all its seeds."""
    known: dict[tuple[str, str, str], dict[str, Any]] = {}
    for cell in cells:
        key = (cell.dataset, cell.model, cell.config)
        if key not in known:
            known[key] = wanted_of(cell, profile)
    return {cell: known[cell.dataset, cell.model, cell.config] for cell in cells}


def _settings(cell: Cell, profile: Profile) -> dict[str, Any] | None:
    from smct_paper.experiments.methods import settings_of

    try:
        return settings_of(cell, profile)
    except Exception:  # the cell fails with the same error in its worker, where it is written down
        return None


@contextmanager
def _ending_is_an_interrupt() -> Iterator[None]:
    """Let the signal to end (kill, timeout, a batch system) tidy up as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
