"""Seconds of the parts of a run: of the clock, which users wait for, and of the processor, for a busy machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, process_time


class Stopwatch:
    """Measures named parts.

    Example:
        >>> stopwatch = Stopwatch()
        >>> with stopwatch.part("fit"):
        ...     pass
        >>> sorted(stopwatch.seconds)
        ['fit_processor_seconds', 'fit_seconds']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        wall, processor = perf_counter(), process_time()
        yield
        self.seconds[f"{name}_seconds"] = round(perf_counter() - wall, 3)
        self.seconds[f"{name}_processor_seconds"] = round(process_time() - processor, 3)
