"""The seasonal naive forecast: what was one season ago, plus a change over a season that the series has had before."""

import numpy as np
from jaxtyping import Float


def seasonal_naive(
    history: Float[np.ndarray, "time"], season: int, horizon: int, n_draws: int, random: np.random.Generator
) -> Float[np.ndarray, "draw horizon"]:
    """Draws for the rows after a history, in which NaN is missing.

    A row for which the value of one season ago is missing repeats that of the season before, and so on.

    Raises:
        ValueError: a place in the season, or the change over one, was never observed.
    """
    last = [_last_seen(history[len(history) - season + step % season :: -season]) for step in range(horizon)]
    changes = history[season:] - history[:-season]
    changes = changes[~np.isnan(changes)]
    if len(changes) == 0:
        raise ValueError(f"no two values are {season} rows apart")
    return np.array(last) + random.choice(changes, size=(n_draws, horizon))


def _last_seen(backwards: Float[np.ndarray, "_"]) -> float:
    """The first value that is not missing."""
    seen = backwards[~np.isnan(backwards)]
    if len(seen) == 0:
        raise ValueError("a place in the season was never observed")
    return float(seen[0])
