"""Times of several functions, interleaved, so that a noisy machine disturbs all of them alike."""

import statistics
from collections.abc import Callable
from time import perf_counter


def median_seconds(functions: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """The median time of each function over interleaved runs, after one warm-up run each."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repetitions):
        for name, function in functions.items():
            started = perf_counter()
            function()
            times[name].append(perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}
