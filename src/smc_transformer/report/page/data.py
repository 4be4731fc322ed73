"""What the page shows, as plain numbers and text that JSON can hold. None is a missing number."""

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pandas as pd

Numbers: TypeAlias = list[float | None]
Times: TypeAlias = list[str] | list[int]
"""Timestamps as ISO text without a zone, or whole numbers."""

QUANTILES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Probabilities of the fan: the ends of the 95, 80 and 50 % intervals, and the median."""


@dataclass(frozen=True)
class TargetPage:
    """One target of a series."""

    history: Numbers  # its values at the times of the history
    mean: Numbers  # of the forecast, at each step
    quantiles: list[Numbers]  # of the forecast, a list for each of the page's quantile levels
    paths: list[Numbers] = field(default_factory=list)  # a handful of sampled futures
    between: Numbers = field(default_factory=list)  # variance of each step between particles
    within: Numbers = field(default_factory=list)  # and within particles: the noise of the observation
    variance_of: str = "y"  # what the variance is of: "y", or "log(1 + y)"


@dataclass(frozen=True)
class HealthPage:
    """How well the particles of a series are."""

    times: Times  # past steps
    ess: Numbers  # effective sample size after each of them
    unique: Numbers  # how many different particles of that step the last particles descend from
    n_particles: int  # the best that both can be


@dataclass(frozen=True)
class AttentionPage:
    """The attention behind the first step of the forecast."""

    times: Times  # of the past slots, oldest first
    mean: Numbers  # weight of each slot, averaged over heads and particles
    lower: Numbers  # the 5 % quantile of the weight across particles
    upper: Numbers  # the 95 % quantile


@dataclass(frozen=True)
class SeriesPage:
    """One series."""

    name: str
    history_times: Times  # on the regular grid
    forecast_times: Times
    targets: list[TargetPage]  # in the order of the page's
    health: HealthPage | None = None  # of its particles
    attention: AttentionPage | None = None  # over its past


@dataclass(frozen=True)
class LevelScores:
    """Scores of the central intervals of one level."""

    level: float  # percentage that the intervals are meant to hold
    picp: float | None  # share of the observations inside
    mpiw: float | None  # mean width
    winkler: float | None  # mean interval score
    picp_by_step: Numbers  # picp at each step of the horizon


@dataclass(frozen=True)
class BacktestPage:
    """The backtest of one target."""

    n_forecasts: int  # forecasts from past cutoffs, over all series
    n_values: int  # observations that they were compared with
    mse: float | None  # of the mean
    crps: float | None
    energy_score: float | None  # of whole paths, joint over steps and targets
    levels: list[LevelScores]
    calibration_levels: list[float]  # shares of probability, between 0 and 1
    calibration_coverage: Numbers  # share of the observations inside the central interval of each
    pit: list[int]  # counts of the probability integral transform, in equal parts of [0, 1]


@dataclass(frozen=True)
class ReportPage:
    """The whole page."""

    title: str
    created: str  # when it was made
    targets: list[str]
    series: list[SeriesPage]
    # Probabilities of the fans; the same distance from both ends of (0, 1) makes an interval.
    quantile_levels: list[float] = field(default_factory=lambda: list(QUANTILES))
    backtest: list[BacktestPage] = field(default_factory=list)  # one for each target, or none
    settings: list[tuple[str, str]] = field(default_factory=list)  # names and values
    time_label: str = "time"


def plain(value: int | float, digits: int = 7) -> float | None:
    """A number with so many significant digits (float32 has no more), or None if it is not finite."""
    value = float(value)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def plain_list(values: Any) -> Numbers:
    """Numbers of an array or tensor with one axis."""
    return [plain(value) for value in values.tolist()]


def plain_times(times: pd.Index) -> Times:
    """ISO text without a zone (times that have one become UTC), or whole numbers."""
    if not hasattr(times, "tz"):
        return [int(time) for time in times]
    if times.tz is not None:
        times = times.tz_convert("UTC").tz_localize(None)
    return [time.isoformat() for time in times]
