"""Series that have not been heard of for a while: out of memory, kept in the store, fetched when a row of them comes.

A state goes to the store and comes back to the bit, so that nobody can tell from answers which series were away.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.folder.access import Writer
from smc_transformer.forecaster.table import Name

AT_ONCE = 32
"""Series that retire together: bounds how long rows have to wait for that."""


class Retired:
    """Which series are away, and when each of the others was last heard of.

    Args:
        fitted: the series that are followed; those that retire leave it.
        writer: of the folder in whose store they are kept.
        after: seconds of silence after which a series retires; None: never.
        clock: seconds.
    """

    def __init__(self, fitted: Fitted, writer: Writer, after: int | float | None, clock: Callable[[], float]) -> None:
        self.away: dict[Name, Any] = {}  # the time of the last row of each
        self._fitted, self._writer, self._after, self._clock = fitted, writer, after, clock
        # In the order in which they were heard of; all of them at the start.
        self._heard = {} if after is None else dict.fromkeys(fitted.following.series, clock())

    def hear(self, names: Iterable[Name]) -> None:
        """Something came of these series, or somebody asked for them."""
        if self._after is None:
            return
        now = self._clock()
        for name in names:
            self._heard.pop(name, None)
            self._heard[name] = now

    def due(self) -> list[Name]:
        """The next series to retire: those that have been silent longest, and long enough."""
        found: list[Name] = []
        since = self._clock() - (self._after or 0)
        for name, heard in self._heard.items():
            if heard > since or len(found) == AT_ONCE:
                break
            found.append(name)
        return found

    def retire(self) -> int:
        """Retire the series that are due, some at a time: how many that were."""
        names = self.due()
        if names:
            self._writer.put_states(self._fitted, names)
            following = self._fitted.following
            self.away |= {name: following.last_time(name) for name in names}
            following.drop(names)
            for name in names:
                del self._heard[name]
        return len(names)

    def fetch(self, names: Collection[Name]) -> None:
        """Follow series again that are away."""
        self._fitted.following.add(self._writer.fetch_states(self._fitted, names))
        for name in names:
            del self.away[name]
        self.hear(names)
