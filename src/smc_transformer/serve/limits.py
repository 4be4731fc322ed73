"""How much one request, and all of them together, may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Beyond these a request is refused with 413, 422, 429 or 503, and says which limit it was."""

    body_bytes: int = 8 * 2**20  # of one request
    rows: int = 10_000  # of one request
    queued_rows: int = 50_000  # of all requests that wait
    batch_rows: int = 5_000  # that go through the filter together
    reads: int = 64  # requests for forecasts that wait
    seconds: int | float = 30.0  # until a request is answered, or told to come again
    series: int = 1_000  # of one forecast
    steps: int = 1_000  # ahead
    n_paths: int = 10_000  # of each series
    numbers: int = 5_000_000  # series * steps * paths * targets of one forecast
    listeners: int = 200  # to events, at the same time
    retry_after: int = 1  # seconds, as 429 and 503 say
