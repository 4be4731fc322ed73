"""What the page shows, as plain numbers and text that JSON can hold. None is a missing number."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

Numbers: TypeAlias = list[float | None]
Times: TypeAlias = list[str] | list[int]
"""Timestamps as ISO text without a zone, or whole numbers."""

QUANTILES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Probabilities of the fan: the ends of the 95, 80 and 50 % intervals, and the median."""


@dataclass(frozen=True)
class TargetPage:
    """One target of a series.

    Attributes:
        history: its values at the times of the history.
        mean: of the forecast, at each step.
        quantiles: of the forecast, a list for each of the page's quantile levels.
        paths: a handful of sampled futures.
        between: variance of each step between particles.
        within: variance of each step within particles: the noise of the observation.
        variance_of: what the variance is of: "y", or "log(1 + y)".
    """

    history: Numbers
    mean: Numbers
    quantiles: list[Numbers]
    paths: list[Numbers] = field(default_factory=list)
    between: Numbers = field(default_factory=list)
    within: Numbers = field(default_factory=list)
    variance_of: str = "y"


@dataclass(frozen=True)
class HealthPage:
    """How well the particles of a series are.

    Attributes:
        times: past steps.
        ess: effective sample size after each of them.
        unique: how many different particles of that step the last particles descend from.
        n_particles: the best that both can be.
    """

    times: Times
    ess: Numbers
    unique: Numbers
    n_particles: int


@dataclass(frozen=True)
class AttentionPage:
    """The attention behind the first step of the forecast.

    Attributes:
        times: of the past slots, oldest first.
        mean: weight of each slot, averaged over heads and particles.
        lower: the 5 % quantile of the weight across particles.
        upper: the 95 % quantile.
    """

    times: Times
    mean: Numbers
    lower: Numbers
    upper: Numbers


@dataclass(frozen=True)
class SeriesPage:
    """One series.

    Attributes:
        name: what it is called.
        history_times: times of the history, on the regular grid.
        forecast_times: times of the forecast.
        targets: its targets, in the order of the page's.
        health: of its particles.
        attention: over its past.
    """

    name: str
    history_times: Times
    forecast_times: Times
    targets: list[TargetPage]
    health: HealthPage | None = None
    attention: AttentionPage | None = None


@dataclass(frozen=True)
class LevelScores:
    """Scores of the central intervals of one level.

    Attributes:
        level: percentage that the intervals are meant to hold.
        picp: share of the observations inside.
        mpiw: mean width.
        winkler: mean interval score.
        picp_by_step: `picp` at each step of the horizon.
    """

    level: float
    picp: float | None
    mpiw: float | None
    winkler: float | None
    picp_by_step: Numbers


@dataclass(frozen=True)
class BacktestPage:
    """The backtest of one target.

    Attributes:
        n_forecasts: forecasts from past cutoffs, over all series.
        n_values: observations that they were compared with.
        mse: of the mean.
        crps: continuous ranked probability score.
        energy_score: of whole paths, joint over steps and targets.
        levels: scores of intervals.
        calibration_levels: shares of probability, between 0 and 1.
        calibration_coverage: share of the observations inside the central interval of each.
        pit: counts of the probability integral transform, in equal parts of [0, 1].
    """

    n_forecasts: int
    n_values: int
    mse: float | None
    crps: float | None
    energy_score: float | None
    levels: list[LevelScores]
    calibration_levels: list[float]
    calibration_coverage: Numbers
    pit: list[int]


@dataclass(frozen=True)
class ReportPage:
    """The whole page.

    Attributes:
        title: heading.
        created: when it was made.
        targets: names of the targets.
        series: the series.
        quantile_levels: probabilities of the fans; the same distance from both ends of (0, 1) makes an interval.
        backtest: one for each target, or none.
        settings: names and values.
        time_label: what the times are called.
    """

    title: str
    created: str
    targets: list[str]
    series: list[SeriesPage]
    quantile_levels: list[float] = field(default_factory=lambda: list(QUANTILES))
    backtest: list[BacktestPage] = field(default_factory=list)
    settings: list[tuple[str, str]] = field(default_factory=list)
    time_label: str = "time"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def plain(value: int | float, digits: int = 7) -> float | None:
    """A number with so many significant digits (float32 has no more), or None if it is not finite."""
    value = float(value)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def plain_list(values: Any) -> Numbers:
    """Numbers of an array or tensor with one axis."""
    return [plain(value) for value in values.tolist()]
