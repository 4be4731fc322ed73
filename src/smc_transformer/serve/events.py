"""Server-sent events: what a page shows, as it changes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from smc_transformer.forecaster.table import Name
from smc_transformer.serve.recent import Surprise
from smc_transformer.serve.worker import Worker

EVERY = 1.0
"""Seconds between two summaries."""
WAITING = 200
"""Events that may wait for a listener who is slow; the oldest are then left out, as a summary comes anyway."""


def summary(worker: Worker, seconds: int | float, most: int) -> dict[str, Any]:
    """Which series were surprising in the last seconds, which have begun, and how the server is."""
    return {
        "now": time.time(),
        "taken": worker.service.n_taken,
        "series": worker.service.n_series,
        "queued": worker.n_queued,
        "failure": worker.failure,
        "surprising": [one.document() for one in worker.recent.most_surprising(most, seconds)],
        "begun": [one._asdict() for one in worker.recent.beginnings(most, seconds)],
    }


class Hub:
    """Listeners to the batches of a worker."""

    def __init__(self, worker: Worker, is_stopping: Callable[[], bool]) -> None:
        self.worker, self.is_stopping = worker, is_stopping
        self.n_listeners = 0

    async def listen(self, series: Name | None, seconds: int | float, most: int) -> AsyncIterator[str]:
        """Events for one listener: `summary` every second, `alert`, and `row` of the series that is looked at."""
        loop, waiting = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]](WAITING)
        id_column = self.worker.service.forecaster.settings.id_column

        def put(event: tuple[str, Any]) -> None:
            if waiting.full():
                waiting.get_nowait()
            waiting.put_nowait(event)

        def told(answers: list[dict[str, Any]], alerts: list[Surprise]) -> None:
            events = [("alert", one.document()) for one in alerts[-WAITING:]]
            if series is not None:
                events += [("row", answer) for answer in answers if answer[id_column] == series]
            for event in events:
                loop.call_soon_threadsafe(put, event)

        self.n_listeners += 1
        self.worker.metrics.listeners.set(self.n_listeners)
        self.worker.listeners.add(told)
        try:
            next_summary = 0.0
            while not self.is_stopping():
                if (now := loop.time()) >= next_summary:
                    next_summary = now + EVERY
                    yield _event("summary", summary(self.worker, seconds, most))
                try:
                    yield _event(*await asyncio.wait_for(waiting.get(), max(0.0, next_summary - loop.time())))
                except asyncio.TimeoutError:
                    continue
        finally:
            self.worker.listeners.discard(told)
            self.n_listeners -= 1
            self.worker.metrics.listeners.set(self.n_listeners)


def _event(kind: str, document: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(document, allow_nan=False)}\n\n"
