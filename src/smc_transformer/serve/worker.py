"""One thread that owns the forecaster: it takes everything that is queued as one batch, and answers it.

Rows of one batch go through the filter together and are written down in one transaction, so that a flush of the disk is
paid once for all that has arrived during the one before.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

from smc_transformer.forecaster.answering import NEW_SERIES, Taken
from smc_transformer.forecaster.folder.store.databases import StoreError
from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.rows import RowError
from smc_transformer.serve.limits import Limits
from smc_transformer.serve.metrics import Metrics
from smc_transformer.serve.recent import Beginning, Recent, Surprise

logger = logging.getLogger(__name__)

LOOK_EVERY = 1024
"""Rows after which it is looked which states are to be saved."""
SPREAD = 2
"""How many times as many states may be saved at once as become due on average. Series that began together are due
together: their states are then saved over the rows of half as long again, and no batch waits for all of them."""
IDLE = 0.5
"""Seconds without a request after which it is looked which series have fallen silent."""

Answers: TypeAlias = list[Taken | RowError]
Listener: TypeAlias = Callable[[list[dict[str, Any]], list[Surprise]], None]
"""Told about each batch: the answers to its rows, and its alerts."""


class FullError(RuntimeError):
    """The queue is full."""


class StoppedError(RuntimeError):
    """The worker takes nothing more."""


class _Rows(NamedTuple):
    rows: Sequence[Any]
    future: "Future[Answers]"


class _Read(NamedTuple):
    call: Callable[[Service], Any]
    future: "Future[Any]"


class Worker:
    """The thread, its queue, and what it has learned."""

    def __init__(self, service: Service, limits: Limits, metrics: Metrics, recent: Recent, save_every: int) -> None:
        self.service, self.limits, self.metrics, self.recent = service, limits, metrics, recent
        self.listeners: set[Listener] = set()
        self.failure: str | None = None  # why rows cannot be taken at the moment
        self.saved_at = time.time()
        self._save_every = save_every  # rows of a series between two saves of its state
        self._n_unlooked = 0  # rows since it was last looked whose states are to be saved
        self._queue: deque[_Rows | _Read] = deque()
        self._n_rows = self._n_reads = 0
        self._changed = threading.Condition()
        self.is_stopping = False  # what comes is refused
        self._thread = threading.Thread(target=self._work, name="forecaster", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._count_series()
        for row in self.service.accepted.newest(1000):
            self.recent.add(row.name, row.answer.get(self._time_column), row.answer.get("surprise", ()), None)
        self._thread.start()

    def stop(self) -> None:
        """Answer all that was taken, save the states, and end. Whatever comes later is refused."""
        with self._changed:
            self.is_stopping = True
            self._changed.notify()
        self._thread.join()
        try:
            if self.failure is None:
                self.service.save()
        finally:
            self.service.close()

    @property
    def n_queued(self) -> int:
        """Rows that wait."""
        return self._n_rows

    def take(self, rows: Sequence[Any]) -> "Future[Answers]":
        """Queue rows; a `FullError` if there are too many, and then none of them is taken."""
        with self._changed:
            self._check()
            if self._n_rows + len(rows) > self.limits.queued_rows:
                raise FullError(f"{self._n_rows} rows are waiting, at most {self.limits.queued_rows} may")
            entry = _Rows(rows, Future())
            self._n_rows += len(rows)
            self.metrics.queued.set(self._n_rows)
            self._queue.append(entry)
            self._changed.notify()
        return entry.future

    def ask(self, call: Callable[[Service], Any]) -> "Future[Any]":
        """Queue something to be read from the forecaster, between two batches."""
        with self._changed:
            self._check()
            if self._n_reads >= self.limits.reads:
                raise FullError(f"{self._n_reads} forecasts are waiting, at most {self.limits.reads} may")
            entry = _Read(call, Future())
            self._n_reads += 1
            self._queue.append(entry)
            self._changed.notify()
        return entry.future

    def _check(self) -> None:
        if self.is_stopping:
            raise StoppedError("the server is stopping")

    @property
    def _time_column(self) -> str:
        return self.service.forecaster.settings.time_column

    def _work(self) -> None:
        while (entries := self._next()) is not None:
            self._retire()
            rows = [entry for entry in entries if isinstance(entry, _Rows)]
            if rows:
                self._take_rows(rows)
            for entry in entries:
                if isinstance(entry, _Read) and entry.future.set_running_or_notify_cancel():
                    try:
                        entry.future.set_result(entry.call(self.service))
                    except BaseException as error:
                        entry.future.set_exception(error)

    def _next(self) -> list[_Rows | _Read] | None:
        """All that waits, up to the size of a batch, or nothing after a while; None at the end."""
        with self._changed:
            if not self._queue and not self.is_stopping:
                self._changed.wait(None if self.service.retire_after is None else IDLE)
            entries: list[_Rows | _Read] = []
            n_rows = 0
            while self._queue:
                entry = self._queue[0]
                n_more = len(entry.rows) if isinstance(entry, _Rows) else 0
                if entries and n_rows + n_more > self.limits.batch_rows:
                    break
                entries.append(self._queue.popleft())
                n_rows += n_more
            self._n_rows -= n_rows
            self._n_reads -= sum(isinstance(entry, _Read) for entry in entries)
            self.metrics.queued.set(self._n_rows)
            return entries if entries or not self.is_stopping else None

    def _take_rows(self, entries: Sequence[_Rows]) -> None:
        begun = time.perf_counter()
        try:
            if self.failure is not None:
                self.service.reopen()
                self.failure = None
            answers = self.service.accept([row for entry in entries for row in entry.rows])
        except BaseException as error:  # a disk that is full, a database that went away
            self._fail(error, entries)
            return
        self._count(answers, time.perf_counter() - begun)
        start = 0
        for entry in entries:
            # Given even if nobody waits any more: the rows are taken.
            if entry.future.set_running_or_notify_cancel():
                entry.future.set_result(answers[start : start + len(entry.rows)])
            start += len(entry.rows)
        self._tell(answers)
        self._n_unlooked += len(answers)
        if self._n_unlooked >= LOOK_EVERY:
            self._save(-(-SPREAD * self._n_unlooked // self._save_every))
            self._n_unlooked = 0

    def _fail(self, error: BaseException, entries: Sequence[_Rows]) -> None:
        """No row of the batch was taken: the forecaster goes back to what is on the disk."""
        logger.error("a batch was not taken: %s", error, exc_info=None if isinstance(error, StoreError) else error)
        self.metrics.failures.inc()
        self.failure = " ".join(str(error).split()) or type(error).__name__
        try:
            self.service.reopen()
            self.failure = None
        except BaseException as second:
            logger.error("the state cannot be read: %s", second)
        if len(entries) > 1 and self.failure is None and not isinstance(error, StoreError):
            for entry in entries:  # alone: a row that nobody has expected must not keep back those of others
                self._take_rows([entry])
            return
        for entry in entries:
            if entry.future.set_running_or_notify_cancel():
                entry.future.set_exception(error)

    def _count(self, answers: Answers, seconds: int | float) -> None:
        metrics = self.metrics
        for one in answers:
            if isinstance(one, RowError):
                metrics.refused.labels(one.kind).inc()
        taken = [one.is_new for one in answers if isinstance(one, Taken)]
        metrics.accepted.inc(sum(taken))
        metrics.repeated.inc(len(taken) - sum(taken))
        metrics.batch_rows.observe(len(answers))
        metrics.batch_seconds.observe(seconds)

    def _tell(self, answers: Answers) -> None:
        settings, now = self.service.forecaster.settings, time.time()
        new = [one.answer for one in answers if isinstance(one, Taken) and one.is_new]
        alerts: list[Surprise] = []
        for answer in new:
            name, when = answer[settings.id_column], answer[settings.time_column]
            alerts += self.recent.add(name, when, answer["surprise"], now)
            if answer.get(NEW_SERIES):
                self.recent.begin(Beginning(now, name, when))
        self._count_series()
        self.metrics.alerts.inc(len(alerts))
        for listener in list(self.listeners):
            listener(new, alerts)

    def _count_series(self) -> None:
        self.metrics.series.set(self.service.n_series)
        self.metrics.begun.set(self.service.accepted.n_begun)

    def _retire(self) -> None:
        """Let go of some series that have long been silent; what comes meanwhile waits for these few only."""
        if self.failure is not None:
            return
        try:
            self.service.retired.retire()
        except Exception as error:  # they stay in memory
            logger.error("silent series could not retire: %s", error)
        self.metrics.retired.set(len(self.service.retired.away))

    def _save(self, most: int) -> None:
        try:
            self.service.save(at_least=self._save_every, most=most)
            self.saved_at = time.time()
            self.metrics.saved.set(self.saved_at)
        except Exception as error:  # the rows are safe in the store: what fails is to make a restart quick
            logger.error("the states could not be saved: %s", error)
