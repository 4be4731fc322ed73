"""Times of several functions, interleaved, so that a noisy machine disturbs all of them alike."""

import statistics
from collections.abc import Callable
from time import perf_counter, sleep

PAUSE = 0.01
"""Seconds before each function's turn: threads of torch go on spinning for a while after a call, and the next function
would share its cores with those of the one before it."""


def median_seconds(
    functions: dict[str, Callable[[], object]], repetitions: int, pause: float = PAUSE
) -> dict[str, float]:
    """The median time of each function over interleaved turns.

    In its turn a function runs twice, and the second run counts: a loop never begins with a processor that has slept.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repetitions):
        for name, function in functions.items():
            sleep(pause)
            function()
            started = perf_counter()
            function()
            times[name].append(perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}
