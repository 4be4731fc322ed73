"""Times as JSON can hold them."""

from typing import TYPE_CHECKING, Any

from smc_transformer.report.page.data import Times

if TYPE_CHECKING:
    import pandas as pd

    from smc_transformer.forecaster.frequency import Frequency


def plain_times(times: "pd.Index") -> Times:
    """ISO text without a zone (times that have one become UTC), or whole numbers."""
    if not hasattr(times, "tz"):
        return [int(time) for time in times]
    if times.tz is not None:
        times = times.tz_convert("UTC").tz_localize(None)
    return [time.isoformat() for time in times]


def times_until(last: Any, n: int, freq: "Frequency") -> "pd.Index":
    """The last n times of the grid, up to a given one."""
    import pandas as pd

    if isinstance(freq, str):
        return pd.date_range(end=last, periods=n, freq=freq)
    return pd.Index(range(int(last) - freq * (n - 1), int(last) + 1, freq), dtype="int64")
