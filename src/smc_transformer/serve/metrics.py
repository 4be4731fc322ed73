"""Counters for Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Metrics:
    """What a server counts. Each has a registry of its own, so that there can be several in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry, "namespace": "smct"}
        self.accepted = Counter("rows_accepted", "rows that were accepted, and are on the disk", **own)
        self.repeated = Counter("rows_repeated", "rows that had been accepted before", **own)
        self.refused = Counter("rows_refused", "rows that were refused", ["kind"], **own)
        self.alerts = Counter("alerts", "values outside the level of alerts", **own)
        self.failures = Counter("batches_failed", "batches that could not be written down", **own)
        self.batch_rows = Histogram("batch_rows", "rows that went through the filter together", buckets=ROWS, **own)
        self.batch_seconds = Histogram("batch_seconds", "from taking a batch to its answers", buckets=SECONDS, **own)
        self.request_seconds = Histogram(
            "request_seconds", "of requests, by route", ["method", "route", "status"], buckets=SECONDS, **own
        )
        self.queued = Gauge("queued_rows", "rows that wait", **own)
        self.series = Gauge("series", "series that are followed", **own)
        self.begun = Gauge("series_begun", "series that have begun with a row, in the life of the store", **own)
        self.retired = Gauge("series_retired", "series that are out of memory until a row of them comes", **own)
        self.listeners = Gauge("event_listeners", "pages and others that listen to events", **own)
        self.saved = Gauge("states_saved_timestamp_seconds", "when the states were saved last", **own)
