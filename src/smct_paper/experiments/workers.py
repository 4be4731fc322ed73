"""Worker processes: each runs one cell after another, and if one dies, only its cell is lost."""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

Task = Callable[..., dict[str, Any]]
"""A function of a module (it is sent by name) whose arguments and answer can be pickled."""

ERROR_LINES = 20
STOP_SECONDS = 5.0


class Worker:
    """A process that runs a task on what it is given, one thing at a time."""

    def __init__(self, task: Task, n_threads: int) -> None:
        context = get_context("spawn")  # a fork of a process with threads (torch's, rich's) may hang
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, task, n_threads), daemon=True)
        with _interrupts_held_back():
            self._process.start()
        theirs.close()  # so that ours ends when the worker does

    def begin(self, arguments: tuple[Any, ...]) -> None:
        """Hand over work; `connection` has something to read when it is done, or when the worker died."""
        with suppress(OSError):  # it died since its last answer: `finish` says so
            self.connection.send(arguments)

    def finish(self) -> tuple[dict[str, Any], bool]:
        """The answer ({"error": ...} if the task failed), and whether the worker lives on."""
        try:
            return self.connection.recv(), True
        except (EOFError, OSError):
            self._process.join(STOP_SECONDS)
            return {"error": _cause_of_death(self._process.exitcode)}, False

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.terminate()
        self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.connection.close()


def wait_for(workers: Sequence[Worker], seconds: float) -> list[Worker]:
    """Those of the workers that have something to say, after at most so many seconds."""
    ready = connection.wait([worker.connection for worker in workers], timeout=seconds)
    return [worker for worker in workers if worker.connection in ready]


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve(orders: Connection, task: Task, n_threads: int) -> None:
    """The loop of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal's processes: the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["OMP_NUM_THREADS"] = str(n_threads)

    import torch

    torch.set_num_threads(n_threads)
    with suppress(EOFError, OSError):  # the parent hung up (a reset if an answer is unread): nothing to complain about
        while True:
            arguments = orders.recv()
            try:
                answer = task(*arguments)
            except Exception:
                answer = {"error": "".join(traceback.format_exc().splitlines(keepends=True)[-ERROR_LINES:]).strip()}
            orders.send(answer)


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, so they watch it and end themselves."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _cause_of_death(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"the worker process ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"the worker process was killed by {name}{hint}"


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start a process that does not see Ctrl-C before it can ignore it; ours sees it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # or the first process starts it, which lets interrupts through (Python 3.11)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
